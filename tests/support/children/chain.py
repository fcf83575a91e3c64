"""A broker node on a chain of two stores, the first on Kafka, the second local: a process that can be killed.

Arguments: DIRECTORY HISTORY. It brings the stores in line, then sends numbered messages to two
queues, acknowledges some in transactions and outside, streams large ones, and moves dead ones away, until it is killed.
Its first life leaves a transaction in doubt. A line is written before a call and once its outcome is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from journal.config import load_settings
from journal.journal import BlockingJournal
from journal.local.journal import LocalJournal
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.lockstep import chained_id
from journal.store.chain.realigning import Realigned, realign
from journal.store.model import Held, Message, QueueConfig, ReferenceInfo
from journal.store.operations.look import QueueInfo
from journal.store.pending import Accepted, Pending
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.children.store import start
from tests.support.children.telling import Notes, read_notes

ADDRESS = "orders"
KEPT, CONSUMED, DEAD = "orders/kept", "orders/consumed", "dead"
SETTINGS = StoreSettings(inline_bytes_max=1000, chunk_bytes=1000)
LARGE_BYTES = 2500
LARGE_EVERY = 20
IN_FLIGHT_MAX = 50

PutBack = Mapping[tuple[str, int], int]
"""References (queue, and message as the second store calls it) that a `realign` put back, and which one: 1 is the
first. They are behind all that was there before, and so may be elsewhere than in the first store."""
NOTHING: PutBack = {}


class Stores(NamedTuple):
    """Two stores in line, and the chain of them."""

    first: MessageStore
    second: MessageStore
    chain: MessageStoreChain
    realigned: Realigned
    put_back: list[tuple[str, int]]


@contextmanager
def stores(journal: BlockingJournal, directory: Path) -> Iterator[Stores]:
    """The stores of the next activations of a journal on Kafka and of a local one."""
    with LocalJournal(directory, shards=2) as local:
        first, second = (start(each, SETTINGS) for each in (journal, local))
        lacked = lacking(first, second)
        (done,) = realign([first, second], names=["kafka", "local"])
        with MessageStoreChain([first, second], names=["kafka", "local"]) as chain:
            yield Stores(first, second, chain, done, lacked)


def contents(store: MessageStore, to_id: Callable[[int], int] = int, put_back: PutBack = NOTHING) -> Any:
    """Everything, in order, but what was put back behind the rest; ids as `to_id` makes them."""
    queues = {}
    for info in store.queues():
        name = info.config.name
        references = [
            (to_id(each.message), store.message(each.message).body, each.state, each.holder, each.deliveries, each.due)
            for each in store.browse(name)
        ]
        references.sort(key=lambda reference: put_back.get((name, reference[0]), 0))
        bindings = {(to_id(each.record_id), each.key, each.filter) for each in store.bindings(name)}
        queues[name] = (info.config, references, bindings)
    return queues, {(entry.name, entry.duplicate_window) for entry in store.addresses()}


def lacking(first: MessageStore, second: MessageStore) -> list[tuple[str, int]]:
    """References that a `realign` puts back into the second store."""
    wanted = [(info.config.name, chained_id(each.message)) for info, each in references_of(first)]
    there = {(info.config.name, each.message) for info, each in references_of(second)}
    return [each for each in wanted if each not in there]


def references_of(store: MessageStore) -> Iterator[tuple[QueueInfo, ReferenceInfo]]:
    return ((info, each) for info in store.queues() for each in store.browse(info.config.name))


def require_same(first: MessageStore, second: MessageStore, put_back: PutBack = NOTHING) -> None:
    """Two stores of a chain hold the same, in the same order."""
    assert contents(first, chained_id, put_back) == contents(second, put_back=put_back)


# ---- in the child --------------------------------------------------------------------------------------------


def declare(chain: MessageStoreChain) -> None:
    chain.create_address(ADDRESS)
    chain.create_address(DEAD)
    for config in (
        QueueConfig(KEPT, ADDRESS, journaled_acquisition=True),
        QueueConfig(CONSUMED, ADDRESS, dead_letter_address=DEAD, journaled_acquisition=True),
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
    notes.write(prepared=tx, locks=locked, adds=added)


def body_of(number: int) -> bytes:
    """Numbered; some are large."""
    return b"%d" % number if number % LARGE_EVERY else (b"%d " % number).ljust(LARGE_BYTES, b".")


def send_together(
    chain: MessageStoreChain, notes: Notes, numbers: list[int]
) -> Iterator[tuple[Accepted, dict[str, Any]]]:
    notes.write(together=numbers)
    for number in numbers:
        notes.write(sending=number)
    sent = chain.send_all([Message(ADDRESS, body_of(number)) for number in numbers], [KEPT, CONSUMED])
    for number, message in zip(numbers, sent.ids, strict=True):
        yield sent, {"sent": number, "id": message}


def settle_together(chain: MessageStoreChain, notes: Notes) -> Iterator[tuple[Accepted, dict[str, Any]]]:
    taken = [delivery.message for _ in range(3) if (delivery := chain.take(CONSUMED, "consumer")) is not None]
    for message in taken:
        notes.write(settling=message)
    settled = chain.acknowledge_all([Held(CONSUMED, taken, "consumer")])
    for message in taken:
        yield settled, {"settled": message}


def work(chain: MessageStoreChain, notes: Notes, number: int) -> None:
    """Until killed: a message to both queues at a time; most are consumed, some dead, from one of them."""
    in_flight: deque[tuple[Accepted, dict[str, Any]]] = deque()
    while True:
        number += 1
        if number % 11 == 0:
            in_flight += send_together(chain, notes, [number, number + 1, number + 2])
            in_flight += settle_together(chain, notes)
            number += 2
            continue
        notes.write(sending=number)
        if number % LARGE_EVERY:
            sent = chain.send(Message(ADDRESS, body_of(number)), [KEPT, CONSUMED])
        else:
            body = body_of(number)
            pieces = (body[start : start + 700] for start in range(0, len(body), 700))
            sent = chain.store_stream(Message(ADDRESS), pieces, [KEPT, CONSUMED])
        in_flight.append((sent, {"sent": number, "id": sent.id}))
        if number % 3 == 0 and (delivery := chain.take(CONSUMED, "consumer")) is not None:
            notes.write(settling=delivery.message)
            in_flight.append((settle(chain, delivery.message, number), {"settled": delivery.message}))
        while len(in_flight) > IN_FLIGHT_MAX:
            pending, told = in_flight.popleft()
            pending.completion.wait()
            notes.write(**told)


def settle(chain: MessageStoreChain, message: int, number: int) -> Pending:
    if number % 7 == 0:
        return chain.dead_letter(message, CONSUMED)
    tx = chain.begin() if number % 2 else 0
    settled = chain.acknowledge(message, CONSUMED, "consumer", tx)
    return chain.commit(tx) if tx else settled


def main(directory: str, history: str) -> None:
    begun = sum("sending" in line for line in read_notes(Path(history)))
    notes = Notes(Path(history))
    with BlockingJournal(load_settings(), copy_name="child") as journal, stores(journal, Path(directory)) as opened:
        if not begun:
            declare(opened.chain)
            prepare_one(opened.chain, notes)
        notes.write(put_back=opened.put_back)
        opened.chain.release_holder("consumer").wait()
        work(opened.chain, notes, begun)
