"""A broker node with a message store, whose client sends again what it has no answer for.

Argument: HISTORY. `send N` on its standard input has it send numbered messages up to N, in order, each once whatever
happened before: the number is its duplicate-detection id. A number is in the history once its message is durable. Every
second message is acknowledged at once; every eighth goes through a transaction.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from journal.config import load_settings
from journal.errors import DuplicateMessageError
from journal.journal import BlockingJournal
from journal.store.model import Message, QueueConfig
from journal.store.pending import Pending
from journal.store.store import MessageStore
from tests.support.children.store import start
from tests.support.children.telling import Notes, obey, read_notes

ADDRESSES = 4
KEYS = 8
"""A message's key is its number's rest; so all of a key have one address."""

_IN_FLIGHT_MAX = 40
_WINDOW = 1_000_000
_WAIT_S = 180.0


def address_of(number: int) -> str:
    return f"orders.{number % ADDRESSES}"


class Sender:
    def __init__(self, store: MessageStore, notes: Notes) -> None:
        self._store = store
        self._notes = notes
        self._in_flight: deque[tuple[int, Pending | None]] = deque()

    def send(self, number: int) -> None:
        address = address_of(number)
        message = Message(address, b"%d" % number, properties={"k": f"{number % KEYS}"}, duplicate_id=b"%d" % number)
        try:
            pending = self._sent(message, number)
        except DuplicateMessageError:
            self._in_flight.append((number, None))  # it was sent by one that was killed
        else:
            self._in_flight.append((number, pending))
        while len(self._in_flight) > _IN_FLIGHT_MAX:
            self._settle()

    def _sent(self, message: Message, number: int) -> Pending:
        store, queue = self._store, f"q.{message.address}"
        if number % 8 == 0:
            tx = store.begin()
            store.send(message, [queue], tx)
            return store.commit(tx)
        return store.send(message, [queue])

    def flush(self) -> None:
        while self._in_flight:
            self._settle()

    def _settle(self) -> None:
        number, pending = self._in_flight.popleft()
        if pending is not None:
            pending.wait(_WAIT_S)
            if number % 2:
                self._store.acknowledge(pending.id, f"q.{address_of(number)}")
        self._notes.write(sent=number)


def declare(store: MessageStore) -> None:
    """What the first start makes."""
    known = {entry.name for entry in store.addresses()}
    queues = {info.config.name for info in store.queues()}
    for number in range(ADDRESSES):
        address = address_of(number)
        if address not in known:
            store.create_address(address, _WINDOW)
        if f"q.{address}" not in queues:
            store.create_queue(QueueConfig(f"q.{address}", address)).wait(_WAIT_S)


def main(history: str) -> None:
    wanted, asked = 0, threading.Condition()

    def send_up_to(number: int) -> None:
        nonlocal wanted
        with asked:
            wanted = number
            asked.notify()

    with BlockingJournal(load_settings(), copy_name="sender") as journal:
        store = start(journal)
        declare(store)
        obey({"send": send_up_to}, threading.Event())
        number = max((line["sent"] for line in read_notes(Path(history))), default=0)
        sender = Sender(store, Notes(Path(history)))
        while True:
            number += 1
            with asked:
                if number > wanted:
                    sender.flush()
                    while number > wanted:
                        asked.wait()
            sender.send(number)
