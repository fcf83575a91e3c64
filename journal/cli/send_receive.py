"""`kafka-journal send` and `receive` put messages into a store and take them out, for trying it out.

They make this process the active node while they last, so they refuse if another node is active. With --node they ask
that node instead.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from contextlib import closing
from typing import Annotated

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    journal_command,
    operator,
    print_json,
    print_note,
    said_if_cut_off,
)
from journal.cli.operations.ports import Json, SendOrder, SentSoFar
from journal.cli.operations.typed_values import METAVAR, TYPES_HELP, parse_values
from journal.cli.places import NodeOption, acting
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts
from journal.cli.text import printable
from journal.errors import ConfigError
from journal.process.clocks import wall_ms
from journal.store.model import PRIORITY_DEFAULT, PRIORITY_MAX, Message
from journal.words import counted, counted_are

# ---- send --------------------------------------------------------------------------------------------------


@journal_command
def send(
    chosen: Chosen,
    address: Annotated[str, typer.Argument(help="The address to send to.")],
    body: Annotated[str, typer.Argument(help="The body as text; - reads standard input, unchanged.")],
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", "-q", help="A queue of the address; may be repeated.", show_default="as the address routes"
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many copies to send.")] = 1,
    priority: Annotated[
        int, typer.Option(min=0, max=PRIORITY_MAX, help="The priority, 0 to 9. Higher ones are delivered first.")
    ] = PRIORITY_DEFAULT,
    message_properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar=METAVAR, help=f"A property; may be repeated. {TYPES_HELP}"),
    ] = None,
    delay_s: Annotated[float, typer.Option(min=0, help="Deliver the message only after this many seconds.")] = 0.0,
    expire_s: Annotated[float, typer.Option(min=0, help="The message expires after this many seconds.")] = 0.0,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create the address, and a queue of the same name, if missing; without --queue, send to that queue.",
        ),
    ] = False,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Store messages and route them to queues of their address, for trying it out.

    Without --queue they go to all multicast queues of the address, and to its anycast queue with the fewest messages.
    """
    settings = chosen.settings()
    now = int(wall_ms())
    headers, properties = parse_values(message_properties or (), "--property")
    message = Message(
        address,
        sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape"),
        headers=headers,
        properties=properties,
        priority=priority,
        timestamp=now,
        due=_in(now, "--delay-s", delay_s),
        expires=_in(now, "--expire-s", expire_s),
    )
    order = SendOrder(message, queue or (), count, create)
    so_far = SentSoFar()
    with (
        said_if_cut_off(lambda: _cut_off(order, so_far, as_json=as_json), lambda: so_far.begun),
        StepProgress() as progress,
        acting(settings, node, take_over=take_over, progress=progress) as acts,
    ):
        queues, ids = acts.send(order, so_far)
    note_done(f"{counted_are(len(ids), 'message')} stored")
    if as_json:
        print_json(_sent_json(order, so_far))
        return
    shown = ", ".join(map(str, ids[:3])) + (", …" if len(ids) > 3 else "")
    print_facts(f"sent to address {address}", {"messages": len(ids), "ids": shown, "queues": ", ".join(queues)})


def _sent_json(order: SendOrder, so_far: SentSoFar) -> Json:
    return {
        "address": order.message.address,
        "queues": so_far.queues,
        "messages": so_far.stored,
        "unknown": so_far.unknown,
        "not_sent": order.count - len(so_far.stored) - so_far.unknown,
    }


def _cut_off(order: SendOrder, so_far: SentSoFar, *, as_json: bool) -> None:
    """Print the fate of the messages of a `send` that was cut off."""
    found = _sent_json(order, so_far)
    if as_json:
        print_json(found)
    stored = counted(len(found["messages"]), "message")
    print_note(f"cut off: stored: {stored}; stored or not: {found['unknown']:,}; not sent: {found['not_sent']:,}")


def _in(now_ms: int, option: str, seconds: float) -> int:
    """The time in ms after this many seconds; 0 for none. Raises ConfigError."""
    ms = seconds * 1000
    if not math.isfinite(ms):
        raise ConfigError(f"{option} {seconds}: expected a number of seconds")
    return now_ms + int(ms) if ms else 0


# ---- receive -----------------------------------------------------------------------------------------------


@journal_command
def receive(
    chosen: Chosen,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    count: Annotated[int, typer.Option(min=0, help="Take at most this many messages; 0 takes all that are ready.")] = 1,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take messages from a queue and acknowledge them, for trying it out.

    It prints the bodies, one on each line, or with --json one object on each line. A message is acknowledged after it
    is printed, so if the command is killed, the last printed message may come again.
    """
    settings = chosen.settings()
    with StepProgress() as progress, acting(settings, node, take_over=take_over, progress=progress) as acts:
        progress.hide()  # the printed bodies show the progress already
        received = 0
        with closing(acts.receiving(queue, operator())) as receiving:
            while (not count or received < count) and (line := receiving.take()):
                _print(line, as_json)
                receiving.acknowledge(line["id"])
                received += 1
            left = receiving.finish()
    if not as_json:
        print_note(f"{counted(received, 'message')}, {left:,} more {'is' if left == 1 else 'are'} ready", style="dim")


def _print(line: Json, as_json: bool) -> None:
    if as_json:
        text = json.dumps(line)
    else:
        body = base64.b64decode(line["body"])
        text = printable(body, len(body))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
