"""`kafka-journal`: the command line. A command's module is imported only when the command is called, for a
quick start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from journal.cli.examples import end_with_examples
from journal.cli.optional_value import OptionalValueCommand
from journal.process.interrupts import raise_interrupts


class Command(NamedTuple):
    """The place of a command (a function, or a `Typer` of several), and its line in the overview."""

    module: str
    attribute: str
    line: str


COMMANDS: Mapping[str, Command] = {
    "kafka": Command("kafka", "app", "The embedded Apache Kafka: start, stop, status."),
    "settings": Command("settings", "settings", "Print every setting with its default and what it does."),
    "init": Command("init", "init", "Create and check the journal's topics and control rows."),
    "worker": Command("worker.worker", "worker", "Run the worker, which applies the WAL to the tables."),
    "node": Command("node.node", "app", "Serve the journal as one of several nodes, or hand it over to another one."),
    "users": Command("users", "app", "Users of AMQP clients: who may log in, and what each may do."),
    "up": Command("up", "up", "Run a whole broker until Ctrl-C: Kafka, a journal, its worker, and AMQP 1.0 clients."),
    "queues": Command(
        "queue_commands", "app", "Queues: what is in them; create, change, delete, pause, resume, purge."
    ),
    "messages": Command("queues", "messages", "Show the messages of a queue in delivery order; nothing is consumed."),
    "send": Command("send_receive", "send", "Store messages and route them to queues: for trying out."),
    "receive": Command("send_receive", "receive", "Take messages from a queue and acknowledge them: for trying out."),
    "explain": Command("explain", "explain", "Show why a record still exists: its queues, holders and transactions."),
    "tx": Command("tx", "app", "Prepared transactions: list, show, commit, rollback, forget."),
    "routes": Command(
        "routes.routes", "app", "Messages to Kafka topics and back: list, test, watch and replay routes."
    ),
    "apply": Command("apply", "apply", "Append the operations of a script."),
    "dump": Command("dump", "dump", "Print the journal's state as JSON lines."),
    "status": Command(
        "status.status", "status", "Show where each shard stands, the nodes, the workers, and what is stopped."
    ),
    "verify": Command("verify.verify", "verify", "Check the tables and the loaded state against the WAL."),
    "repair": Command("repair", "app", "Mend a journal by hand: skip, control, table."),
    "trim": Command("trim", "trim", "Delete the beginning of the WAL, which tables and archive no longer need."),
    "destroy": Command("destroy", "destroy", "Delete a journal for good: topics, groups, and what this machine keeps."),
    "spark": Command("spark.spark", "app", "Spark: its packages, a look at what it reads, and its jobs."),
    "demo": Command(
        "flights.demo", "demo", "Run a year of flights through the journal, with a failover in the middle."
    ),
}


COMMAND_DESCRIPTORS = 128
"""File descriptors that a command needs: some forty for Kafka's clients, the rest for a copy of the tables."""


class LazyCommands(TyperGroup):
    """The commands of the table. Only the called one is imported; the overview takes its lines from the table."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        for name, command in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=command.line)

    def main(self, *given: Any, **named: Any) -> Any:
        """Run a command line. A wrong one is an error in the same words as every other error of a command."""
        from journal.cli.usage import usage_errors

        alone = named.pop("standalone_mode", True)
        named["standalone_mode"] = False
        if not alone:
            return super().main(*given, **named)
        with usage_errors():
            code = super().main(*given, **named)
        sys.exit(code or 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        command = load_command(name or "")
        raise_interrupts()
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        from journal.cli.common import exit_codes
        from journal.process.descriptors import require_descriptors

        with exit_codes():
            require_descriptors(COMMAND_DESCRIPTORS, "a command")
            return super().invoke(ctx)


def load_command(name: str) -> Any:
    """A command of the table, as the group calls it."""
    command = COMMANDS[name]
    found = getattr(import_module(f"journal.cli.{command.module}"), command.attribute)
    if isinstance(found, typer.Typer):
        return end_with_examples(typer.main.get_group(found), name)
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=OptionalValueCommand)(found)
    return end_with_examples(typer.main.get_command(alone), name)


app = typer.Typer(
    cls=LazyCommands,
    name="kafka-journal",
    help="A journal service for message brokers, kept in Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        typer.echo(f"kafka-journal {metadata.version('kafka-journal')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on standard error.")] = False,
) -> None:
    from journal.cli.logs import set_up_logging

    set_up_logging(verbose)


def main() -> None:
    """Run the command line."""
    from journal.cli.standard_streams import standard_streams

    with standard_streams():
        app()
