"""A broker node on a chain of two stores, the first on Kafka, the second local: a process that can be killed.

`python -m tests.support.chain_node DIRECTORY HISTORY` brings the stores in line, then sends numbered messages to two
queues, acknowledges some in transactions and outside, streams large ones, and moves dead ones away, until it is killed.
Its first life leaves a transaction in doubt. A line is written before a call and once its outcome is durable.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from journal.config import load_settings
from journal.journal import BlockingJournal
from journal.local_journal import LocalJournal
from journal.store.chain import MessageStoreChain
from journal.store.lockstep import chained_id
from journal.store.model import Message, QueueConfig
from journal.store.pending import Pending
from journal.store.realigning import Realigned, realign
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from loaders.queues import QueueLoader
from tests.support.store_node import Notes

ADDRESS = "orders"
KEPT, CONSUMED, DEAD = "orders/kept", "orders/consumed", "dead"
SETTINGS = StoreSettings(inline_bytes_max=1000, chunk_bytes=1000)
LARGE_BYTES = 2500
LARGE_EVERY = 20
IN_FLIGHT_MAX = 50


class Stores(NamedTuple):
    """Two stores in line, and the chain of them."""

    first: MessageStore
    second: MessageStore
    chain: MessageStoreChain
    realigned: Realigned


@contextmanager
def stores(journal: BlockingJournal, directory: Path) -> Iterator[Stores]:
    """The stores of the next activations of a journal on Kafka and of a local one."""
    with LocalJournal(directory, shards=2) as local:
        opened = []
        for each in (journal, local):
            loader = QueueLoader()
            each.activate(loader)
            store = MessageStore(each, SETTINGS)
            store.start(loader.loaded)
            opened.append(store)
        first, second = opened
        (done,) = realign([first, second], names=["kafka", "local"])
        with MessageStoreChain([first, second], names=["kafka", "local"]) as chain:
            yield Stores(first, second, chain, done)


def contents(store: MessageStore, to_id: Callable[[int], int] = int) -> Any:
    """Everything but places; ids as `to_id` makes them."""
    queues = {}
    for info in store.queues():
        name = info.config.name
        references = {
            (to_id(each.message), store.message(each.message).body, each.state, each.holder, each.deliveries, each.due)
            for each in store.browse(name)
        }
        bindings = {(to_id(each.record_id), each.key, each.filter) for each in store.bindings(name)}
        queues[name] = (info.config, references, bindings)
    return queues, {(entry.name, entry.duplicate_window) for entry in store.addresses()}


def require_same(first: MessageStore, second: MessageStore) -> None:
    """Two stores of a chain hold the same."""
    assert contents(first, chained_id) == contents(second)


# ---- in the child --------------------------------------------------------------------------------------------


def declare(chain: MessageStoreChain) -> None:
    chain.create_address(ADDRESS)
    chain.create_address(DEAD)
    for config in (
        QueueConfig(KEPT, ADDRESS),
        QueueConfig(CONSUMED, ADDRESS, dead_letter_address=DEAD),
        QueueConfig(DEAD, DEAD),
    ):
        chain.create_queue(config).wait()


def prepare_one(chain: MessageStoreChain, notes: Notes) -> None:
    """A transaction that stays in doubt: it adds a message, and acknowledges one."""
    locked = chain.send(Message(ADDRESS, b"locked"), [CONSUMED]).wait()
    tx = chain.begin()
    added = chain.send(Message(ADDRESS, b"in doubt"), [CONSUMED], tx).id
    chain.acknowledge(locked, CONSUMED, tx=tx)
    chain.prepare(tx, b"xid").wait()
    notes.note(prepared=tx, locks=locked, adds=added)


def body_of(number: int) -> bytes:
    """Numbered; some are large."""
    return b"%d" % number if number % LARGE_EVERY else (b"%d " % number).ljust(LARGE_BYTES, b".")


def work(chain: MessageStoreChain, notes: Notes, number: int) -> None:
    """Until killed: a message to both queues at a time; most are consumed, some dead, from one of them."""
    in_flight: deque[tuple[Pending, dict[str, Any]]] = deque()
    while True:
        number += 1
        notes.note(sending=number)
        if number % LARGE_EVERY:
            sent = chain.send(Message(ADDRESS, body_of(number)), [KEPT, CONSUMED])
        else:
            body = body_of(number)
            pieces = (body[start : start + 700] for start in range(0, len(body), 700))
            sent = chain.store_stream(Message(ADDRESS), pieces, [KEPT, CONSUMED])
        in_flight.append((sent, {"sent": number, "id": sent.id}))
        if number % 3 == 0 and (delivery := chain.take(CONSUMED, "consumer")) is not None:
            notes.note(settling=delivery.message)
            in_flight.append((settle(chain, delivery.message, number), {"settled": delivery.message}))
        while len(in_flight) > IN_FLIGHT_MAX:
            pending, told = in_flight.popleft()
            pending.wait()
            notes.note(**told)


def settle(chain: MessageStoreChain, message: int, number: int) -> Pending:
    if number % 7 == 0:
        return chain.dead_letter(message, CONSUMED)
    tx = chain.begin() if number % 2 else 0
    settled = chain.acknowledge(message, CONSUMED, "consumer", tx)
    return chain.commit(tx) if tx else settled


def main() -> None:
    directory, history = Path(sys.argv[1]), Path(sys.argv[2])
    begun = history.read_bytes().count(b'"sending"') if history.exists() else 0
    notes = Notes(history)
    with BlockingJournal(load_settings(), copy_name="child") as journal, stores(journal, directory) as opened:
        if not begun:
            declare(opened.chain)
            prepare_one(opened.chain, notes)
        opened.chain.release_holder("consumer").wait()
        work(opened.chain, notes, begun)


if __name__ == "__main__":
    main()
