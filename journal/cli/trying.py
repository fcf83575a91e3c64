"""`kafka-journal send` and `receive`: messages into and out of a store, for trying out.

They make this process the journal's active node for the command's time, so they refuse while a broker is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from journal.cli.activating import activated_journal
from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    errors,
    journal_command,
    operator,
    print_facts,
    print_json,
)
from journal.cli.store import queue_loader
from journal.cli.text import printable
from journal.config import Settings
from journal.errors import AddressMissingError, ConfigError, QueueMissingError, StateError
from journal.journal import BlockingJournal
from journal.limits import ID_MAX
from journal.runtime import wall_ms
from journal.script import encode_data
from journal.store.looking import QueueInfo
from journal.store.model import PRIORITY_DEFAULT, PRIORITY_MAX, Delivery, Message, QueueConfig, Routing
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore

_PROGRESS_MESSAGES = 256


@contextmanager
def _active_store(
    settings: Settings, *, take_over: bool, progress: StepProgress
) -> Iterator[tuple[MessageStore, BlockingJournal]]:
    """A message store of an active journal, closed cleanly however the command ends.

    What others hold stays theirs. Raises ActiveNodeError unless `take_over`.
    """
    with (
        queue_loader(settings.journal) as loader,
        activated_journal(settings, take_over=take_over, progress=progress, loader=loader) as (journal, _),
        MessageStore(journal, StoreSettings(acquire_grace_ms=ID_MAX)) as store,
    ):
        store.start(loader.loaded)
        yield store, journal


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
        sys.stdin.buffer.read() if body == "-" else body.encode(),
        properties=parse_properties(message_properties or ()),
        priority=priority,
        timestamp=now,
        due=now + int(delay_s * 1000) if delay_s else 0,
        expires=now + int(expire_s * 1000) if expire_s else 0,
    )
    with StepProgress() as progress, _active_store(settings, take_over=take_over, progress=progress) as (store, _):
        if create:
            _create(store, address)
        queues = list(queue or _queues_of(store, address))
        ids = _send_all(store, message, queues, count, progress)
    if as_json:
        print_json({"address": address, "queues": queues, "messages": ids})
        return
    shown = ", ".join(map(str, ids[:3])) + (", …" if len(ids) > 3 else "")
    print_facts(f"sent to address {address}", {"messages": len(ids), "ids": shown, "queues": ", ".join(queues)})


def _send_all(
    store: MessageStore, message: Message, queues: Sequence[str], count: int, progress: StepProgress
) -> list[int]:
    """Their ids, once all are durable."""
    ids = []
    for number in range(count):
        ids.append(store.send(message, queues).id)
        if number % _PROGRESS_MESSAGES == 0:
            progress("send", number, count)
    store.flush().wait()
    return ids


def parse_properties(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE each. Raises ConfigError."""
    properties = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"--property {item}: expected KEY=VALUE")
        properties[key] = value
    return properties


def _create(store: MessageStore, address: str) -> None:
    if all(entry.name != address for entry in store.addresses()):
        store.create_address(address).wait()
    if all(info.config.address != address for info in store.queues()):
        store.create_queue(QueueConfig(address, address)).wait()


def _queues_of(store: MessageStore, address: str) -> list[str]:
    if all(entry.name != address for entry in store.addresses()):
        raise AddressMissingError(f"there is no address {address}: --create makes it, with a queue of its name")
    queues = routed_to([info for info in store.queues() if info.config.address == address])
    if not queues:
        raise QueueMissingError(f"address {address} has no queue: --create makes one of its name")
    return queues


def routed_to(infos: Sequence[QueueInfo]) -> list[str]:
    """Of an address' queues all that are multicast, and the anycast one with the fewest messages."""
    names = [info.config.name for info in infos if info.config.routing is Routing.MULTICAST]
    anycast = [info for info in infos if info.config.routing is Routing.ANYCAST]
    if anycast:
        names.append(min(anycast, key=_depth).config.name)
    return names


def _depth(info: QueueInfo) -> int:
    return info.ready + info.scheduled + info.held + info.locked + info.arriving


# ---- receive -----------------------------------------------------------------------------------------------


@journal_command
def receive(
    chosen: Chosen,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    count: Annotated[int, typer.Option(min=0, help="At most so many; 0: all that are ready.")] = 1,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take messages from a queue and acknowledge them, for trying out.

    Prints their bodies, a line each; with --json an object a line. A message is acknowledged after it was printed, so
    one that was being printed when the command was killed comes again.
    """
    settings = chosen.settings()
    holder = f"kafka-journal receive {operator()}"
    with (
        StepProgress() as progress,
        _active_store(settings, take_over=take_over, progress=progress) as (store, journal),
    ):
        progress.hide()  # the bodies show how far it is
        if all(info.config.name != queue for info in store.queues()):
            raise QueueMissingError(f"there is no queue {queue}: kafka-journal queues lists those that there are")
        store.release_holder(holder).wait()  # what one held that was killed
        received = 0
        try:
            while (not count or received < count) and (delivery := store.take(queue, holder)):
                _print(delivery, store.message(delivery.message), as_json)
                store.acknowledge(delivery.message, queue, holder)
                received += 1
        finally:
            store.release_holder(holder)
        store.flush().wait()
        if not journal.current:
            raise StateError("this node did not know that it was still the active one: call again")
        left = store.queue(queue).ready
    if not as_json:
        errors.print(f"{received:,} messages, {left:,} more are ready", style="dim", highlight=False)


def _print(delivery: Delivery, message: Message, as_json: bool) -> None:
    if as_json:
        line: dict[str, Any] = {
            "id": delivery.message,
            "deliveries": delivery.deliveries,
            "priority": message.priority,
            "timestamp": message.timestamp,
            "properties": {name: str(value) for name, value in message.properties.items()},
            "body": encode_data(message.body),
        }
        text = json.dumps(line)
    else:
        text = printable(message.body, len(message.body))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
