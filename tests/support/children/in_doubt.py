"""A node over a journal with transactions in doubt: activates, says how many there are, and works until it is killed.

It opens the journal of its environment, tells `working` with the number of branches that it has loaded, and sends and
takes messages of its own queue without waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from journal.config import load_settings
from journal.errors import FullError
from journal.journal import BlockingJournal
from journal.process.clocks import wall_ms
from journal.store.model import Message
from journal.store.store import MessageStore
from journal.xa.resource import XaResource
from loaders.queues import QueueLoader
from tests.support.children.telling import tell

ADDRESS = "orders"
SOURCE, TARGET, NOISE = "orders/source", "orders/target", "orders/noise"
"""Branches take from the first and send to the second; the third is of whoever is active."""


class ActiveStore(NamedTuple):
    """A store and its branches."""

    store: MessageStore
    resource: XaResource


@contextmanager
def active_store(journal: BlockingJournal) -> Iterator[ActiveStore]:
    """The store of the journal's next activation, which takes over from whoever is active."""
    loader = QueueLoader()
    journal.activate(loader)
    with MessageStore(journal) as store:
        store.start(loader.loaded)
        resource = XaResource(store, journal, loader.loaded, clock_ms=wall_ms)
        resource.start()
        yield ActiveStore(store, resource)


def work(store: MessageStore, messages: int) -> None:
    """Send so many, and take and acknowledge half of them; what becomes of them nobody waits for."""
    for number in range(messages):
        store.send(Message(ADDRESS, b"noise"), [NOISE])
        if number % 2 and (delivery := store.take(NOISE, "worker")) is not None:
            store.acknowledge(delivery.message, NOISE, "worker")


def main() -> None:
    with BlockingJournal(load_settings(), copy_name="child") as journal, active_store(journal) as (store, resource):
        tell("working", in_doubt=len(resource.in_doubt()))
        while True:
            try:
                work(store, 10)
            except FullError:
                store.room().wait()
