"""A transaction as the store knows it: what it stores, routes, acknowledges, changes and declares, until it is settled.

The journal holds a transaction's operations; this is what their commit or rollback means for the queues, in the order
in which it was said. What is not durable in it is only here, and does not survive its preparation by a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from journal.errors import JournalError, StateError
from journal.store.declared import Declarations, Declared
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


class Changed(NamedTuple):
    """What a commit makes of a reference that stays (acquired, released, counted, scheduled); locked until then."""

    holder: str
    deliveries: int
    due: int
    durable: bool
    acknowledged: bool = False
    """By the same transaction: then it does not stay after all."""


class NotDurable(NamedTuple):
    """What of a prepared transaction lives in this process only: a load brings back the transaction without it."""

    messages: tuple[int, ...] = ()
    references: tuple[tuple[int, str], ...] = ()
    """(message, queue) that it routes."""
    acknowledgements: tuple[tuple[int, str], ...] = ()
    """(message, queue) that it settles."""
    changes: tuple[tuple[int, str], ...] = ()
    """(message, queue) that it acquires, releases, counts or schedules."""
    declarations: tuple[str, ...] = ()
    """Queues that it creates or destroys, and bindings that it adds or removes, in words."""

    def __bool__(self) -> bool:
        return any(self)


NOTHING = NotDurable()
"""All is durable."""


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
    """(message, queue) that it acknowledges, and holds locked."""
    changes: tuple[tuple[int, str], ...] = ()
    """(message, queue) that it acquires, releases, counts or schedules, and holds locked."""
    declarations: tuple[Declared, ...] = ()
    """What it does to addresses, queues and bindings; `str` says it in words."""

    @property
    def empty(self) -> bool:
        """Nothing was done in it."""
        return not (self.messages or self.references or self.acknowledgements or self.changes or self.declarations)


@dataclass(slots=True, eq=False)
class StoreTransaction:
    """An open or prepared transaction. The store's lock guards it."""

    tx: int
    since_ms: int
    data: bytes = b""
    prepared: bool = False
    rolled_back: bool = False
    """After it was prepared: what it holds goes back once that is durable."""
    refused: JournalError | None = None
    """Why it can only be rolled back."""
    stored: dict[int, bool] = field(default_factory=dict)
    """Messages: whether durable."""
    routed: list[Routed] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    changed: dict[tuple[int, int], Changed] = field(default_factory=dict)
    """By message and queue."""
    declared: Declarations = field(default_factory=Declarations)
    unclaimed: dict[tuple[int, int], bool] = field(default_factory=dict)
    """(message, queue) that it acquires for a holder who has let go of everything since, or who has not come back since
    the load; and whether it counts that they are given back."""
    reservations: list[Reservation] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    """Bodies of durable messages, for the cache once it is committed."""
    body_bytes: int = 0
    streams: int = 0
    """Large messages of which it has a part."""
    queues: set[int] = field(default_factory=set)
    """Those of which it routes, acknowledges or changes messages."""
    addresses: set[int] = field(default_factory=set)
    """Those at which it stores messages."""

    def route(self, message: int, queue: int, *, durable: bool) -> None:
        self.routed.append(Routed(message, queue, durable))
        self.queues.add(queue)

    def take(self, queue: int, taken: list[Taken]) -> None:
        self.taken += taken
        self.queues.add(queue)

    def change(self, key: tuple[int, int], changed: Changed) -> None:
        self.changed[key] = changed
        self.queues.add(key[1])

    def require_whole(self) -> None:
        """Raises what refuses its prepare and commit: `refused`, or StateError while a large message is on its way."""
        if self.refused is not None:
            raise self.refused.again()
        if self.streams:
            raise StateError(f"a large message is on its way into transaction {self.tx}: wait for it, or roll back")

    def keep_body(self, message: int, body: bytes, bytes_max: int) -> None:
        if self.body_bytes + len(body) <= bytes_max:
            self.bodies[message] = body
            self.body_bytes += len(body)

    def acquired_for(self, holder: str) -> set[tuple[int, int]]:
        """(message, queue) that a holder has by the commit, of those that it changes."""
        return {key for key, changed in self.changed.items() if changed.holder == holder}

    def declares(self, record_id: int) -> bool:
        """Whether a queue or binding that it creates or destroys has that id."""
        declared = self.declared
        return (
            any(each.record_id == record_id for each in declared.queues)
            or any(each.entry.record_id == record_id for each in declared.bindings)
            or any(each.record_id == record_id for queue in declared.queues for each in queue.bindings)
        )
