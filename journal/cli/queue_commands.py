"""`kafka-journal queues create|change|delete|pause|resume|purge` act on one queue of a message store.

They make this process the active node while they last, so they refuse if another node is active. With --node they ask
that node instead.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    YesOption,
    confirm_by_name,
    journal_command,
    operator,
    print_json,
    print_line,
)
from journal.cli.operations.looking import missing_queue
from journal.cli.operations.ports import QueueAct
from journal.cli.optional_value import OptionalValueCommand
from journal.cli.places import NodeOption, acting, looking
from journal.cli.queues import app
from journal.cli.standard_streams import note_done
from journal.config import Settings
from journal.errors import ConfigError
from journal.words import counted

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
FilterOption = Annotated[str | None, typer.Option("--filter", help="The filter, as its broker writes it.")]
DeliveriesOption = Annotated[
    int | None,
    typer.Option(
        "--deliveries-max",
        min=0,
        max=2**32 - 1,
        help="Deliveries after which its broker takes a message for dead; 0: never.",
    ),
]
DeadLetterOption = Annotated[
    str | None, typer.Option("--dead-letter-address", help="Where dead messages go; empty: nowhere.")
]
ExpiryOption = Annotated[
    str | None, typer.Option("--expiry-address", help="Where expired messages go; empty: nowhere.")
]
ExclusiveOption = Annotated[
    bool | None, typer.Option("--exclusive/--shared", help="Whether its broker gives it to one consumer alone.")
]


@app.command(cls=OptionalValueCommand)
@journal_command
def create(
    chosen: Chosen,
    queue: QueueArgument,
    address: Annotated[
        str | None, typer.Option("--address", help="Its address, made if missing.", show_default="the queue's name")
    ] = None,
    multicast: Annotated[bool, typer.Option("--multicast", help="It gets each message of its address.")] = False,
    filter: FilterOption = None,
    deliveries_max: DeliveriesOption = None,
    dead_letter_address: DeadLetterOption = None,
    expiry_address: ExpiryOption = None,
    exclusive: ExclusiveOption = None,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a queue, and its address if that is missing."""
    fields = _given(filter, deliveries_max, dead_letter_address, expiry_address, exclusive)
    fields |= {"address": address or queue, "routing": "multicast" if multicast else "anycast"}
    _act(chosen.settings(), QueueAct("create", queue, fields), node, take_over=take_over, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def change(
    chosen: Chosen,
    queue: QueueArgument,
    filter: FilterOption = None,
    deliveries_max: DeliveriesOption = None,
    dead_letter_address: DeadLetterOption = None,
    expiry_address: ExpiryOption = None,
    exclusive: ExclusiveOption = None,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Change a queue and leave what is in it. What no option names stays as it is."""
    fields = _given(filter, deliveries_max, dead_letter_address, expiry_address, exclusive)
    if not fields:
        raise ConfigError("nothing is to change: give an option, as --deliveries-max or --filter")
    _act(chosen.settings(), QueueAct("change", queue, fields), node, take_over=take_over, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def delete(
    chosen: Chosen,
    queue: QueueArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a queue with all that is in it."""
    settings = chosen.settings()
    _confirm(settings, queue, node, "delete queue {queue}, and the {depth} messages in it, for good", yes=yes)
    _act(settings, QueueAct("delete", queue, {}), node, take_over=take_over, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def pause(
    chosen: Chosen,
    queue: QueueArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a queue take messages in and hand out none, until `queues resume`, also after a failover."""
    _act(chosen.settings(), QueueAct("pause", queue, {}), node, take_over=take_over, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def resume(
    chosen: Chosen,
    queue: QueueArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a paused queue hand out messages again."""
    _act(chosen.settings(), QueueAct("resume", queue, {}), node, take_over=take_over, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def purge(
    chosen: Chosen,
    queue: QueueArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the messages that are ready in a queue. Held, locked and scheduled messages stay."""
    settings = chosen.settings()
    _confirm(settings, queue, node, "remove the {ready} messages that are ready in queue {queue}, for good", yes=yes)
    _act(settings, QueueAct("purge", queue, {}), node, take_over=take_over, as_json=as_json)


_DONE = {
    **{"create": "created", "change": "changed", "delete": "deleted", "pause": "paused", "resume": "resumed"},
    "purge": "purged",
}


def _given(
    filter: str | None,
    deliveries_max: int | None,
    dead_letter_address: str | None,
    expiry_address: str | None,
    exclusive: bool | None,
) -> dict[str, Any]:
    """The fields of a queue that options name."""
    named = {
        "filter": filter,
        "deliveries_max": deliveries_max,
        "dead_letter_address": dead_letter_address,
        "expiry_address": expiry_address,
        "exclusive": exclusive,
    }
    return {name: value for name, value in named.items() if value is not None}


def _confirm(settings: Settings, queue: str, node: str | None, question: str, *, yes: bool) -> None:
    """Have the user type the queue's name, unless `yes`. Raises QueueMissingError."""
    if yes:
        return
    with looking(settings, node) as looks:
        line = next((line for line in looks.queues().queues if line["queue"] == queue), None)
    if line is None:
        raise missing_queue(queue, settings.journal)
    counts = {"queue": queue, "depth": f"{line['depth']:,}", "ready": f"{line['ready']:,}"}
    confirm_by_name(f"{question.format(**counts)}? Type the queue's name", queue, yes=yes)


def _act(settings: Settings, act: QueueAct, node: str | None, *, take_over: bool, as_json: bool) -> None:
    with StepProgress() as progress, acting(settings, node, take_over=take_over, progress=progress) as acts:
        done = acts.queue(act, operator=operator())
    said = f"queue {act.queue} is {_DONE[act.action]}"
    if act.action == "purge":
        said += f": {counted(done['purged'], 'message')}"
    note_done(said)
    if as_json:
        print_json(done)
    else:
        print_line(said)
