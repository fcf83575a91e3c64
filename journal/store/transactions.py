"""Transactions as the store knows them: what they store, route, acknowledge, change and declare until they are settled.

The journal holds the operations of a transaction; this is what their commit or rollback means for the queues, in the
order of acceptance. What is not durable is only here: a crash after the prepare loses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from journal.errors import JournalError, StateError, StoreError, TransactionPreparedError, TransactionUnknownError
from journal.store.declared import Declarations, Declared
from journal.store.duplicates import Reservation


class Routed(NamedTuple):
    """A reference that a commit makes deliverable."""

    message: int
    queue: int
    durable: bool


class Taken(NamedTuple):
    """A reference that a commit settles; it is locked until then."""

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
    """Whether the same transaction acknowledges the reference later, so that it does not stay."""


class NotDurable(NamedTuple):
    """The parts of a prepared transaction that live in this process only: a load brings it back without them."""

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
"""What is told of a transaction of which all is durable."""


class TransactionInfo(NamedTuple):
    """A transaction, for those who list and settle them."""

    tx: int
    data: bytes
    """The data that it was prepared with: an xid."""
    prepared: bool
    since_ms: int
    """When it began, in ms since 1970; 0 for one that a load brought back."""
    messages: tuple[int, ...]
    """The messages that the transaction stores."""
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
    """Whether it was prepared and is rolled back: what it holds goes back once the rollback is durable."""
    refused: JournalError | None = None
    """Why it can only be rolled back; None if nothing refuses it."""
    stored: dict[int, bool] = field(default_factory=dict)
    """Messages that it stores, and whether each is durable."""
    routed: list[Routed] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    changed: dict[tuple[int, int], Changed] = field(default_factory=dict)
    """Changes by (message, queue)."""
    declared: Declarations = field(default_factory=Declarations)
    unclaimed: dict[tuple[int, int], bool] = field(default_factory=dict)
    """(message, queue) that it acquires for a holder who has let go of everything since, or has not come back since the
    load. The value says whether giving them back counts as a delivery."""
    reservations: list[Reservation] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    """Bodies of durable messages, for the cache once it is committed."""
    body_bytes: int = 0
    streams: int = 0
    """Number of large messages of which it has a part."""
    queues: set[int] = field(default_factory=set)
    """Queues of which it routes, acknowledges or changes messages."""
    addresses: set[int] = field(default_factory=set)
    """Addresses at which it stores messages."""

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
        """(message, queue) that it changes and that a holder will have once it is committed."""
        return {key for key, changed in self.changed.items() if changed.holder == holder}

    def declares(self, record_id: int) -> bool:
        """Whether a queue or binding that it creates or destroys has that id."""
        declared = self.declared
        return (
            any(each.record_id == record_id for each in declared.queues)
            or any(each.entry.record_id == record_id for each in declared.bindings)
            or any(each.record_id == record_id for queue in declared.queues for each in queue.bindings)
        )


class KnownTransactions:
    """Transactions that the store knows. The store's lock guards them."""

    __slots__ = ("declaring", "open", "settling", "stored_in")

    def __init__(self) -> None:
        self.open: dict[int, StoreTransaction] = {}
        """Open and prepared transactions by number."""
        self.settling: list[StoreTransaction] = []
        """Transactions whose commit or rollback is not durable yet."""
        self.declaring: dict[int, StoreTransaction] = {}
        """Transactions that create or destroy addresses, queues or bindings."""
        self.stored_in: dict[int, int] = {}
        """Messages that a transaction stores, with its number, until the commit or until the rollback is durable."""

    def find(self, tx: int) -> StoreTransaction:
        """An open or prepared transaction. Raises TransactionUnknownError."""
        txn = self.open.get(tx)
        if txn is None:
            raise TransactionUnknownError(f"no transaction {tx} is open or prepared")
        return txn

    def accepting(self, tx: int) -> StoreTransaction:
        """An open transaction that takes operations.

        Raises TransactionUnknownError, TransactionPreparedError, and what refused the whole transaction before.
        """
        txn = self.find(tx)
        if txn.prepared:
            raise TransactionPreparedError(f"transaction {tx} is prepared: commit it or roll it back")
        if txn.refused is not None:
            raise txn.refused.again()
        return txn

    def unsettled(self) -> list[StoreTransaction]:
        """Transactions whose commit or rollback has not begun, or is not durable."""
        return [*self.open.values(), *self.settling]

    def refuse_rest(self, tx: int, what: str) -> None:
        """Refuse everything but a rollback, because the transaction contains only a part of an operation."""
        txn = self.open.get(tx)
        if txn is not None and txn.refused is None and not txn.prepared:
            txn.refused = StoreError(f"{what} was cut off: roll the transaction back")
