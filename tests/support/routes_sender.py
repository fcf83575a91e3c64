"""A broker node with a message store as a process that can be killed, and whose client sends again what it has no
answer for: `python -m tests.support.routes_sender HISTORY`.

It sends numbered messages up to the number that its standard input last said, in order, each once whatever happened
before: the number is its duplicate-detection id. A number is in the history once its message is durable. Every second
message is acknowledged at once; every eighth goes through a transaction.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from pathlib import Path

from journal.config import load_settings
from journal.errors import DuplicateMessageError
from journal.journal import BlockingJournal
from journal.store.model import Message, QueueConfig
from journal.store.pending import Pending
from journal.store.store import MessageStore
from loaders.queues import QueueLoader
from tests.support.history_files import open_history

ADDRESSES = 4
KEYS = 8
"""A message's key is its number's rest; so all of a key have one address."""

_IN_FLIGHT_MAX = 40
_WINDOW = 1_000_000
_WAIT_S = 180.0


def address_of(number: int) -> str:
    return f"orders.{number % ADDRESSES}"


class Sender:
    def __init__(self, store: MessageStore, history: Path) -> None:
        self._store = store
        self._history = open_history(history)
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
        self._history.write(b"%d\n" % number)


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


def main() -> None:
    history = Path(sys.argv[1])
    wanted, asked = 0, threading.Condition()

    def listen() -> None:
        nonlocal wanted
        for line in sys.stdin:
            with asked:
                wanted = int(line)
                asked.notify()

    with BlockingJournal(load_settings(), copy_name="sender") as journal:
        loader = QueueLoader()
        journal.activate(loader)
        store = MessageStore(journal)
        store.start(loader.loaded)
        declare(store)
        threading.Thread(target=listen, daemon=True).start()
        sender = Sender(store, history)
        number = max((int(line) for line in history.read_text().split()), default=0) if history.exists() else 0
        while True:
            number += 1
            with asked:
                if number > wanted:
                    sender.flush()
                    while number > wanted:
                        asked.wait()
            sender.send(number)


if __name__ == "__main__":
    main()
