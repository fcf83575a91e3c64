"""Consumers with a selector: microseconds for each message that a cursor passes, in queues of several lengths.

    python -m bench selectors

first       The consumer takes all that its selector selects, one in 1,000, out of a full queue.
again       It asks again when nothing new has come: what was passed is not looked at again.

The work is linear if `first` costs the same for each message of a short and of a long queue.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rounds import Comparison, Outcome, rounded, say
from journal.broker.selection import selection
from journal.local.journal import LocalJournal
from journal.store.model import Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from loaders.queues import QueueLoader

LENGTHS = (25_000, 50_000, 100_000)
QUICK_LENGTHS = (2_000, 4_000)
SELECTED = 1_000
"""One message in so many is selected."""
SENT_AT_ONCE = 1_000
AGAIN = 1_000
TARGET_RATIO = 0.67
"""The cost of a message of the shortest queue, divided by that of the longest."""


def run(quick: bool) -> Outcome:
    """Measure queues of several lengths, each in a store of its own."""
    figures: dict[str, float] = {}
    lengths = QUICK_LENGTHS if quick else LENGTHS
    costs: list[float] = []
    for length in lengths:
        first_us, again_us = _measure(length)
        say(f"{length} messages: {first_us:.2f} us each, {again_us:.2f} us to ask again")
        figures |= {f"first_{length}_us": rounded(first_us), f"again_{length}_us": rounded(again_us)}
        costs.append(first_us)
    comparison = Comparison(
        f"message_of_{lengths[-1]}", "us", [costs[-1]], [costs[0]], target=TARGET_RATIO, less_is_better=True
    )
    return Outcome([comparison], figures)


def _measure(length: int) -> tuple[float, float]:
    settings = StoreSettings(volatile_bytes_max=2**30)
    with tempfile.TemporaryDirectory() as directory, LocalJournal(Path(directory) / "journal") as journal:
        loader = QueueLoader()
        journal.activate(loader)
        with MessageStore(journal, settings) as store:
            store.start(loader.loaded)
            store.create_address("orders").wait()
            store.create_queue(QueueConfig("orders", "orders", durable=False)).wait()
            for start in range(0, length, SENT_AT_ONCE):
                numbers = range(start, min(start + SENT_AT_ONCE, length))
                store.send_all([_message(number) for number in numbers], ["orders"]).wait()
            return _ask(store, length)


def _message(number: int) -> Message:
    return Message("orders", b"x" * 100, properties={"number": number % SELECTED}, durable=False)


def _ask(store: MessageStore, length: int) -> tuple[float, float]:
    with store.cursor("orders", selection("number = 7 AND JMSPriority >= 4")) as cursor:
        found = 0
        begun = time.process_time()
        while True:
            found += len(cursor.take_all("consumer", 100))
            if not cursor.more:
                break
        first_s = time.process_time() - begun
        assert found == length // SELECTED
        begun = time.process_time()
        for _ in range(AGAIN):
            cursor.take_all("consumer", 100)
        again_s = time.process_time() - begun
    return first_s / length * 1e6, again_s / AGAIN * 1e6
