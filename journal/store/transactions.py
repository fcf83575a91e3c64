"""The store's view of transactions: the messages that they store, route, acknowledge and change, and the queues that
they declare, until they are settled.

The journal holds the operations of a transaction; here are the effects of their commit or rollback on the queues, in
the order of acceptance. Parts that are not durable are only here, so a crash after the prepare loses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from journal.errors import JournalError, StateError, StoreError, TransactionPreparedError, TransactionUnknownError
from journal.store.declared import Declarations, Declared
from journal.store.duplicates import Reservation
from journal.v1.store_pb2 import Acknowledgement


class Routed(NamedTuple):
    """A reference that becomes deliverable by the commit."""

    message: int
    queue: int
    durable: bool


class Taken(NamedTuple):
    """A reference that the commit settles; it is locked until then."""

    message: int
    queue: int
    holder: str
    durable: bool
    reason: int = Acknowledgement.CONSUMED


class Changed(NamedTuple):
    """The change that the commit makes to a reference that stays (acquired, released, counted, scheduled); it is locked
    until then."""

    holder: str
    deliveries: int
    due: int
    durable: bool
    acknowledged: bool = False
    """Whether the same transaction acknowledges the reference later, so that it does not stay after all."""


class NotDurable(NamedTuple):
    """The parts of a prepared transaction that exist in this process only. A load brings the transaction back without
    them."""

    messages: tuple[int, ...] = ()
    references: tuple[tuple[int, str], ...] = ()
    """The (message, queue) pairs that it routes."""
    acknowledgements: tuple[tuple[int, str], ...] = ()
    """The (message, queue) pairs that it settles."""
    changes: tuple[tuple[int, str], ...] = ()
    """The (message, queue) pairs that it acquires, releases, counts or schedules."""
    declarations: tuple[str, ...] = ()
    """Queues that it creates or destroys, and bindings that it adds or removes, as texts."""

    def __bool__(self) -> bool:
        return any(self)


NOTHING = NotDurable()
"""The value for a transaction of which all parts are durable."""


class TransactionInfo(NamedTuple):
    """The facts about a transaction, for code that lists and settles transactions."""

    tx: int
    data: bytes
    """The data with which it was prepared: an xid."""
    prepared: bool
    since_ms: int
    """When it began, in ms since 1970; 0 for one that a load brought back."""
    messages: tuple[int, ...]
    """The messages that the transaction stores."""
    references: tuple[tuple[int, str], ...]
    """The (message, queue) pairs that it routes."""
    acknowledgements: tuple[tuple[int, str], ...]
    """The (message, queue) pairs that it acknowledges, and keeps locked."""
    changes: tuple[tuple[int, str], ...] = ()
    """The (message, queue) pairs that it acquires, releases, counts or schedules, and keeps locked."""
    declarations: tuple[Declared, ...] = ()
    """Its changes of addresses, queues and bindings; `str` gives each as a text."""

    @property
    def empty(self) -> bool:
        """Whether it has no operations."""
        return not (self.messages or self.references or self.acknowledgements or self.changes or self.declarations)


@dataclass(slots=True, eq=False)
class StoreTransaction:
    """An open or prepared transaction. The store's lock guards it."""

    tx: int
    since_ms: int
    data: bytes = b""
    prepared: bool = False
    rolled_back: bool = False
    """Whether it was prepared and is rolled back. Its messages are released once the rollback is durable."""
    releases: bool = False
    """Whether its rollback releases the messages that it has acknowledged or changed."""
    refused: JournalError | None = None
    """The error for which it can only be rolled back; None if there is none."""
    stored: dict[int, bool] = field(default_factory=dict)
    """Messages that it stores, and whether each is durable."""
    routed: list[Routed] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    changed: dict[tuple[int, int], Changed] = field(default_factory=dict)
    """Changes by (message, queue)."""
    declared: Declarations = field(default_factory=Declarations)
    unclaimed: dict[tuple[int, int], bool] = field(default_factory=dict)
    """The (message, queue) pairs that it acquires for a holder that has let go of everything since, or has not come
    back since the load. The value says whether their release counts as a delivery."""
    reservations: list[Reservation] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    """Bodies of durable messages, for the cache once it is committed."""
    body_bytes: int = 0
    streams: int = 0
    """The number of large messages whose bodies are being stored in it."""
    queues: set[int] = field(default_factory=set)
    """Queues in which it routes, acknowledges or changes messages."""
    addresses: set[int] = field(default_factory=set)
    """Addresses at which it stores messages."""

    def route(self, message: int, queue: int, *, durable: bool) -> None:
        self.routed.append(Routed(message, queue, durable))
        self.queues.add(queue)

    def take(self, taken: list[Taken]) -> None:
        self.taken += taken
        self.queues.update(each.queue for each in taken)

    def change(self, key: tuple[int, int], changed: Changed) -> None:
        self.changed[key] = changed
        self.queues.add(key[1])

    def require_whole(self) -> None:
        """Raises the error that refuses its prepare and commit: `refused`, or StateError while the body of a large
        message is being stored in it."""
        if self.refused is not None:
            raise self.refused.again()
        if self.streams:
            raise StateError(f"a large message is on its way into transaction {self.tx}: wait for it, or roll back")

    def keep_body(self, message: int, body: bytes, bytes_max: int) -> None:
        if self.body_bytes + len(body) <= bytes_max:
            self.bodies[message] = body
            self.body_bytes += len(body)

    def acquired_for(self, holder: str) -> set[tuple[int, int]]:
        """The (message, queue) pairs that it changes and that a holder will have once it is committed."""
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
        """The messages that each transaction stores, until its commit, or until its rollback is durable."""

    def find(self, tx: int) -> StoreTransaction:
        """An open or prepared transaction. Raises TransactionUnknownError."""
        txn = self.open.get(tx)
        if txn is None:
            raise TransactionUnknownError(f"no transaction {tx} is open or prepared")
        return txn

    def accepting(self, tx: int) -> StoreTransaction:
        """An open transaction that takes operations.

        Raises TransactionUnknownError, TransactionPreparedError, and the error that refused the whole transaction
        before.
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
