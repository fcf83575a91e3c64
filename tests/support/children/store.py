"""A broker node with a message store on Kafka as a process that can be killed: writes down what it was told.

Argument: HISTORY. It sends numbered messages to two queues, takes and acknowledges some of them
in transactions and outside, keeps one transaction in doubt, and goes on until it is killed. A line is written before a
call (`sending`, `acknowledging`) and once its outcome is durable (`sent`, `acknowledged`). Some go together (`together`
says which), and so do all of a third queue (`sending_batch` and so on).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from journal.config import load_settings
from journal.journal import BlockingJournal
from journal.local.journal import LocalJournal
from journal.store.model import Held, Message, QueueConfig
from journal.store.pending import Accepted
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from loaders.queues import QueueLoader
from tests.support.children.telling import Notes

IN_FLIGHT_MAX = 50
BATCH = 20
"""Messages of one call."""
WINDOW = 10_000


def start(journal: BlockingJournal | LocalJournal, settings: StoreSettings | None = None) -> MessageStore:
    """The store of the journal's next activation."""
    loader = QueueLoader(references_in_memory_max=10**6, queue_references_in_memory_max=10**6)
    journal.activate(loader)
    store = MessageStore(journal, settings)
    store.start(loader.loaded)
    return store


def prepare_one(store: MessageStore, notes: Notes) -> None:
    """A transaction that stays in doubt: it adds a message, and acknowledges one in a queue."""
    kept = store.send(Message("orders", b"locked"), ["orders/a"]).wait()
    tx = store.begin()
    added = store.send(Message("orders", b"in doubt", duplicate_id=b"in doubt"), ["orders/b"], tx).id
    store.acknowledge(kept, "orders/a", tx=tx)
    store.prepare(tx, b"xid").wait()
    notes.write(prepared=tx, locks=kept, adds=added)


def order(number: int) -> Message:
    return Message("orders", b"%d" % number, duplicate_id=b"%d" % number)


def batch(number: int) -> list[Message]:
    """Numbered messages of the third queue; of every other one some are large, so that they go one by one."""
    filling = b"." * (300_000 if number % 2 else 0)
    return [Message("batches", b"%d/%d" % (number, each) + filling * (each == 3)) for each in range(BATCH)]


def send_some(store: MessageStore, notes: Notes, number: int) -> Iterator[tuple[Accepted, dict[str, Any]]]:
    """One, or three together."""
    if number % 7:
        notes.write(sending=number)
        sent = store.send(order(number), ["orders/a", "orders/b"])
        yield sent, {"sent": number, "id": sent.id}
        return
    numbers = [number, number + 1, number + 2]
    notes.write(together=numbers)
    for each in numbers:
        notes.write(sending=each)
    together = store.send_all([order(each) for each in numbers], ["orders/a", "orders/b"])
    for each, message_id in zip(numbers, together.ids, strict=True):
        yield together, {"sent": each, "id": message_id}


def work(store: MessageStore, notes: Notes) -> None:
    """Until killed: every message goes to both queues; every third is consumed from one of them. Batches go to a third
    queue, and every other one is consumed."""
    in_flight: deque[tuple[Accepted, dict[str, Any]]] = deque()
    batches: deque[dict[str, Any]] = deque()
    number = 0
    while True:
        number += 1
        sent = list(send_some(store, notes, number))
        in_flight += sent
        number += len(sent) - 1
        if number % 5 == 0:
            notes.write(sending_batch=number)
            many = store.send_all(batch(number), ["batches"])
            in_flight.append((many, {"sent_batch": number, "ids": many.ids}))
        if len(batches) > 1:
            batches.popleft()
            many, ids = batches[0]["sent_batch"], batches.popleft()["ids"]
            notes.write(acknowledging_batch=many)
            in_flight.append((store.acknowledge_all([Held("batches", ids)]), {"acknowledged_batch": many}))
        if number % 3 == 0 and (delivery := store.take("orders/a", "consumer")) is not None:
            tx = store.begin() if number % 2 else 0
            notes.write(acknowledging=delivery.message)
            acknowledged = store.acknowledge(delivery.message, "orders/a", "consumer", tx)
            if tx:
                acknowledged = store.commit(tx)
            in_flight.append((acknowledged, {"acknowledged": delivery.message}))
        while len(in_flight) > IN_FLIGHT_MAX:
            pending, told = in_flight.popleft()
            pending.completion.wait()
            notes.write(**told)
            if "sent_batch" in told:
                batches.append(told)


def main(history: str) -> None:
    notes = Notes(Path(history))
    with BlockingJournal(load_settings(), copy_name="child") as journal:
        store = start(journal)
        store.create_address("orders", WINDOW)
        for name in ("a", "b"):
            store.create_queue(QueueConfig(f"orders/{name}", "orders", journaled_acquisition=True)).wait()
        store.create_address("batches")
        store.create_queue(QueueConfig("batches", "batches")).wait()
        large = store.store_stream(Message("orders", priority=0), (b"x" * 100_000 for _ in range(10)), ["orders/b"])
        notes.write(large=large.wait())
        prepare_one(store, notes)
        work(store, notes)
