"""The port to an index of the references that do not fit in memory. `RocksReferenceIndex` is one; the order of those in
memory is in `journal.store.queues.lines`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Paged(NamedTuple):
    """A READY or SCHEDULED reference that waits outside of memory."""

    queue: int
    """The queue's record id."""
    rank: int
    """The rank of its priority: 0 is delivered first."""
    place: int
    """The place within the queue and rank, less than 2^128."""
    due: int
    """The time until which it is SCHEDULED; 0 if it is READY."""
    message: int
    expires: int
    data: bytes
    passed: bool = False
    """Whether it has expired before it could be taken: it is READY, and only `expired` tells it."""


class ReferenceIndex(Protocol):
    """The index for references beyond the memory bounds, in delivery order. Every process begins with it empty.

    Once it has raised LocalStorageError it raises it always, as it may have lost something.
    """

    def put(self, paged: Paged) -> None: ...

    def page(self, queue: int, rank: int, limit: int) -> list[Paged]:
        """Take out the first READY references that were not passed."""

    def due(self, now_ms: int, limit: int) -> list[Paged]:
        """SCHEDULED references that are due by now, the earliest first."""

    def next_due(self) -> int:
        """When the next SCHEDULED reference is due; 0 if there is none."""

    def expired(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """(message, queue) that have expired by now, the earliest first. One that leaves meanwhile may be told."""

    def passed(self, now_ms: int, limit: int) -> list[Paged]:
        """Passed references that have not expired by now; the one that expires last comes first."""

    def find(self, message: int) -> list[Paged]:
        """All references of a message."""

    def remove(self, paged: Paged) -> None: ...

    def scan(self, queue: int, rank: int = 0, place: int = 0) -> list[Iterator[Paged]]:
        """References of a queue from a place on, in runs, each in delivery order.

        One that comes or leaves meanwhile may be told.
        """
