"""`kafka-journal send` and `receive`: messages into and out of a store, for trying out.

They make this process the journal's active node for the command's time, so they refuse while a broker is; or they ask
the node that is.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Sequence
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
    print_facts,
    print_json,
    print_note,
)
from journal.cli.operations.ports import Json, SendOrder
from journal.cli.places import NodeOption, acting
from journal.cli.text import printable
from journal.errors import ConfigError
from journal.process.clocks import wall_ms
from journal.store.model import PRIORITY_DEFAULT, PRIORITY_MAX, Message

# ---- send --------------------------------------------------------------------------------------------------


@journal_command
def send(
    chosen: Chosen,
    address: Annotated[str, typer.Argument(help="The address.")],
    body: Annotated[str, typer.Argument(help="The body as text; - for standard input, as it is.")],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="A queue of the address; may be repeated.", show_default="as they route"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many of it.")] = 1,
    priority: Annotated[int, typer.Option(min=0, max=PRIORITY_MAX, help="The highest goes first.")] = PRIORITY_DEFAULT,
    message_properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="KEY=VALUE", help="A property; may be repeated.")
    ] = None,
    delay_s: Annotated[float, typer.Option(min=0, help="Deliver it only after so many seconds.")] = 0.0,
    expire_s: Annotated[float, typer.Option(min=0, help="It expires after so many seconds.")] = 0.0,
    create: Annotated[bool, typer.Option("--create", help="Make the address and a queue, if missing.")] = False,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Store messages and route them to queues of their address, for trying out.

    Without --queue to all its multicast queues, and to the anycast queue with the fewest messages.
    """
    settings = chosen.settings()
    now = int(wall_ms())
    message = Message(
        address,
        sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape"),
        properties=parse_properties(message_properties or ()),
        priority=priority,
        timestamp=now,
        due=_in(now, "--delay-s", delay_s),
        expires=_in(now, "--expire-s", expire_s),
    )
    order = SendOrder(message, queue or (), count, create)
    with StepProgress() as progress, acting(settings, node, take_over=take_over, progress=progress) as acts:
        queues, ids = acts.send(order)
    if as_json:
        print_json({"address": address, "queues": queues, "messages": ids})
        return
    shown = ", ".join(map(str, ids[:3])) + (", …" if len(ids) > 3 else "")
    print_facts(f"sent to address {address}", {"messages": len(ids), "ids": shown, "queues": ", ".join(queues)})


def _in(now_ms: int, option: str, seconds: float) -> int:
    """So many seconds from now, in ms; 0 for none. Raises ConfigError."""
    ms = seconds * 1000
    if not math.isfinite(ms):
        raise ConfigError(f"{option} {seconds}: expected a number of seconds")
    return now_ms + int(ms) if ms else 0


def parse_properties(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE each. Raises ConfigError."""
    properties = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"--property {item}: expected KEY=VALUE")
        properties[key] = value
    return properties


# ---- receive -----------------------------------------------------------------------------------------------


@journal_command
def receive(
    chosen: Chosen,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    count: Annotated[int, typer.Option(min=0, help="At most so many; 0: all that are ready.")] = 1,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take messages from a queue and acknowledge them, for trying out.

    Prints their bodies, a line each; with --json an object a line. A message is acknowledged after it was printed, so
    one that was being printed when the command was killed comes again.
    """
    settings = chosen.settings()
    with StepProgress() as progress, acting(settings, node, take_over=take_over, progress=progress) as acts:
        progress.hide()  # the bodies show how far it is
        received = 0
        with closing(acts.receiving(queue, operator())) as receiving:
            while (not count or received < count) and (line := receiving.take()):
                _print(line, as_json)
                receiving.acknowledge(line["id"])
                received += 1
            left = receiving.finish()
    if not as_json:
        print_note(f"{received:,} messages, {left:,} more are ready", style="dim")


def _print(line: Json, as_json: bool) -> None:
    if as_json:
        text = json.dumps(line)
    else:
        body = base64.b64decode(line["body"])
        text = printable(body, len(body))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
