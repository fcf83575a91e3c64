"""`kafka-journal`: the command line."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from journal.cli import apply, bench, demo, dump, init, kafka, repair, status, tx, verify, worker
from journal.cli.common import set_up_logging

app = typer.Typer(
    name="kafka-journal",
    help="A journal service for message brokers, kept in Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(kafka.app, name="kafka")
app.command("init")(init.init)
app.command("worker")(worker.worker)
app.command("up")(worker.up)
app.command("apply")(apply.apply)
app.command("dump")(dump.dump)
app.command("status")(status.status)
app.add_typer(tx.app, name="tx")
app.command("verify")(verify.verify)
app.add_typer(repair.app, name="repair")
app.command("demo")(demo.demo)
app.add_typer(bench.app, name="bench")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kafka-journal {metadata.version('kafka-journal')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version this is.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on standard error.")] = False,
) -> None:
    set_up_logging(verbose)


def main() -> None:
    """The console script."""
    app()
