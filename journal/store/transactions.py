"""A transaction as the store knows it: what it stores, routes and acknowledges, until it is settled.

The journal holds a transaction's operations; this is what their commit or rollback means for the queues, in the order
in which it was said. What is not durable in it is only here, and does not survive its preparation by a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from journal.errors import JournalError
from journal.store.duplicates import Reservation


class Routed(NamedTuple):
    """A reference that a commit makes deliverable."""

    message: int
    queue: int
    durable: bool


class Taken(NamedTuple):
    """A reference that a commit settles; locked until then."""

    message: int
    queue: int
    holder: str
    durable: bool


class NotDurable(NamedTuple):
    """What of a prepared transaction lives in this process only: a load brings back the transaction without it."""

    messages: tuple[int, ...] = ()
    references: tuple[tuple[int, str], ...] = ()
    """(message, queue) that it routes."""
    acknowledgements: tuple[tuple[int, str], ...] = ()
    """(message, queue) that it settles."""

    def __bool__(self) -> bool:
        return bool(self.messages or self.references or self.acknowledgements)


class TransactionInfo(NamedTuple):
    """A transaction, for those who list and settle them."""

    tx: int
    data: bytes
    """What it was prepared with: an xid."""
    prepared: bool
    since_ms: int
    """When it began, in ms since 1970; 0 for one that a load brought back."""
    messages: tuple[int, ...]
    """Messages that it stores."""
    references: tuple[tuple[int, str], ...]
    """(message, queue) that it routes."""
    acknowledgements: tuple[tuple[int, str], ...]
    """(message, queue) that it holds locked."""

    @property
    def empty(self) -> bool:
        """Nothing was done in it."""
        return not (self.messages or self.references or self.acknowledgements)


@dataclass(slots=True, eq=False)
class StoreTransaction:
    """An open or prepared transaction. The store's lock guards it."""

    tx: int
    since_ms: int
    data: bytes = b""
    prepared: bool = False
    refused: JournalError | None = None
    """Why it can only be rolled back."""
    stored: dict[int, bool] = field(default_factory=dict)
    """Messages: whether durable."""
    routed: list[Routed] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    let_go: set[str] = field(default_factory=set)
    """Holders who let go of everything meanwhile: a rollback gives theirs back to the queue."""
    reservations: list[Reservation] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    """Bodies of durable messages, for the cache once it is committed."""
    body_bytes: int = 0

    def keep_body(self, message: int, body: bytes, bytes_max: int) -> None:
        if self.body_bytes + len(body) <= bytes_max:
            self.bodies[message] = body
            self.body_bytes += len(body)

    def touches(self, queue: int) -> bool:
        return any(item.queue == queue for item in self.routed) or any(item.queue == queue for item in self.taken)
