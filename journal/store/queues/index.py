"""The interface of an index for references that do not fit in memory. `RocksReferenceIndex` implements it;
`journal.store.queues.lines` keeps the order of references in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Paged(NamedTuple):
    """A READY or SCHEDULED reference that is in the index and not in memory."""

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
    """Whether a take has passed over this reference as expired. It is then READY, but `page` leaves it out and only
    `expired` returns it."""


class ReferenceIndex(Protocol):
    """The index for references beyond the memory bounds, in delivery order. Every process begins with it empty.

    After one LocalStorageError every call raises it, because references may be lost.
    """

    def put(self, paged: Paged) -> None: ...

    def page(self, queue: int, rank: int, limit: int) -> list[Paged]:
        """Take the first READY references out of the index, without those that a take has passed over as expired."""

    def due(self, now_ms: int, limit: int) -> list[Paged]:
        """The SCHEDULED references that are due by now, the earliest first."""

    def next_due(self) -> int:
        """When the next SCHEDULED reference is due; 0 if there is none."""

    def expired(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """The (message, queue) pairs that have expired by now, the earliest first. A reference that leaves meanwhile
        may still be in the result."""

    def passed(self, now_ms: int, limit: int) -> list[Paged]:
        """The references that a take has passed over as expired, but that have not expired at this time, because the
        clock was set back. The one that expires last comes first."""

    def find(self, message: int) -> list[Paged]:
        """All references of a message."""

    def remove(self, paged: Paged) -> None: ...

    def scan(self, queue: int, rank: int = 0, place: int = 0) -> list[Iterator[Paged]]:
        """The references of a queue from a place on, in runs, each in delivery order.

        A reference that comes or leaves meanwhile may be in the result or not.
        """
