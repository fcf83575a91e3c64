"""`kafka-journal queues` and `messages` show what is in a message store; nothing is consumed. The commands under
`queues` are in `journal.cli.queue_commands`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line, print_note
from journal.cli.optional_value import OptionalValueGroup
from journal.cli.places import NodeOption, looking
from journal.cli.tables import print_table
from journal.cli.text import duration
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.words import called, counted

_DEFAULT_LIMIT = 100

app = typer.Typer(cls=OptionalValueGroup, invoke_without_command=True, no_args_is_help=False)


# ---- queues ------------------------------------------------------------------------------------------------


@app.callback()
@journal_command
def queues(chosen: Chosen, context: typer.Context, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Show the queues and what is in them: depth, bytes, held messages and their holders, scheduled messages, the
    oldest one. The bytes are those of bodies, with their addresses, headers and properties as the journal has them.

    With --node they are also counted since its activation: added, delivered, acknowledged and so on.

    They are shown as of the WAL's committed end. It needs no worker and disturbs nobody.
    """
    if context.invoked_subcommand is not None:
        if chosen != Chosen() or node is not None or as_json:
            raise typer.BadParameter(f"options of {context.invoked_subcommand} come behind its name")
        return
    settings = chosen.settings()
    with looking(settings, node) as looks:
        found, orphaned = looks.queues()
    if as_json:
        print_json(found)
    elif not found:
        made = command("send", "orders", "hello", "--create")
        print_line(f"{called(settings.journal)} has no queues: {made} makes one, to try it out")
    else:
        print_table(f"queues of {called(settings.journal)}", QUEUE_COLUMNS, [_queue_row(line) for line in found])
    if orphaned:
        count = f"{counted(orphaned, 'message')} that no queue refers to"
        print_note(f"{count}: the next activation deletes {'it' if orphaned == 1 else 'them'}", style="dim")


QUEUE_COLUMNS = (
    *("queue", "address", "depth", "bytes", "held", "locked", "scheduled", "in doubt", "holders", "oldest"),
    "since activation",
)


def _queue_row(line: Mapping[str, Any]) -> tuple[object, ...]:
    numbers = [f"{line[name]:,}" for name in ("depth", "bytes", "held", "locked", "scheduled", "in_doubt")]
    holders = ", ".join(f"{name} ({count:,})" for name, count in line["holders"].items())
    name = f"{line['queue']} (paused)" if line["paused"] else line["queue"]
    counts = ", ".join(f"{count:,} {what}" for what, count in (line["since_activation"] or {}).items() if count)
    return name, line["address"], *numbers, holders, _age(line["oldest_age_seconds"]), counts


# ---- messages ----------------------------------------------------------------------------------------------


@journal_command
def messages(
    chosen: Chosen,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    limit: Annotated[int, typer.Option(min=0, help="Show this many messages; 0 shows all.")] = _DEFAULT_LIMIT,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the messages of a queue in delivery order. Nothing is consumed and nobody is disturbed.

    A message's bytes are those of its body, with its address, headers and properties as the journal has them.
    """
    now_ms = wall_ms()
    with looking(chosen.settings(), node) as looks:
        total, lines = looks.messages(queue, limit)
        found = list(lines)
    if as_json:
        print_json(found)
        return
    print_table(f"messages of queue {queue}", MESSAGE_COLUMNS, [_message_row(line, now_ms) for line in found])
    if 0 < limit < total:
        print_note(f"messages shown: {len(found):,} of {total:,} (--limit 0 shows all)", style="dim")


MESSAGE_COLUMNS = (
    *("id", "state", "priority", "bytes", "age", "deliveries", "who has it", "due in", "expires in", "body"),
)


def _message_row(line: Mapping[str, Any], now_ms: float) -> tuple[object, ...]:
    who = f"transaction {line['tx']}" if line["tx"] else line["holder"]
    expires = 0 if line["state"] == "expired" else line["expires"]
    times = [duration((moment - now_ms) / 1000) if moment else "" for moment in (line["due"], expires)]
    return (
        line["id"],
        line["state"],
        line["priority"],
        f"{line['bytes']:,}",
        _age(line["age_seconds"]),
        line["deliveries"],
        who,
        *times,
        line["text"],
    )


def _age(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)
