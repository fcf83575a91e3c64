"""What XA needs of its surroundings: where branches live, where outcomes are kept, and who else takes part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from journal.append.operations import PlainOperation
from journal.errors import JournalError
from journal.store.transactions import NotDurable

ClockMs = Callable[[], float]
"""Milliseconds since 1970."""


class Waitable(Protocol):
    """A `Completion`, or the store's `Pending`."""

    @property
    def done(self) -> bool: ...

    @property
    def error(self) -> JournalError | None: ...

    def wait(self, timeout_s: float | None = None) -> object:
        """Block until done; raises the error, or DeadlineError when `timeout_s` passes first."""


@runtime_checkable
class SaysNotDurable(Protocol):
    """A prepare of what may hold more than is durable: a store's; a journal holds nothing else."""

    @property
    def not_durable(self) -> NotDurable: ...


class Transactions(Protocol):
    """Where branches live: a message store, or a journal itself. Thread-safe."""

    def begin(self) -> int: ...

    def is_empty(self, tx: int) -> bool:
        """Whether nothing was done in `tx`, which is not prepared. Raises TransactionUnknownError."""

    def prepare(self, tx: int, data: bytes) -> Waitable: ...

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Waitable:
        """Commit `tx`; `then` takes effect in the same group, behind what the transaction does."""

    def rollback(self, tx: int) -> Waitable: ...


class OutcomeRecords(Protocol):
    """Where outcomes are kept: the journal under the store. Thread-safe."""

    def new_id(self, virtual_shard: int = 0) -> int: ...

    def add(self, record_id: int, kind: int, data: bytes) -> Waitable: ...

    def delete(self, record_id: int) -> Waitable: ...

    def append_all(self, operations: Sequence[PlainOperation]) -> Waitable: ...


class PreparedRow(Protocol):
    """A transaction that a load found in doubt."""

    @property
    def tx(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class OutcomeRow(Protocol):
    """An OUTCOME record that a load found."""

    @property
    def record_id(self) -> int: ...

    @property
    def data(self) -> bytes: ...


class LoadedRows(Protocol):
    """What a load of the journal tells XA: `LoadedStore` and `XaLoader.loaded` are such."""

    @property
    def prepared(self) -> Sequence[PreparedRow]: ...

    @property
    def outcomes(self) -> Sequence[OutcomeRow]: ...


class TwoPhaseConnection(Protocol):
    """A connection with PEP 249's two-phase commit: psycopg's, or a `Session` of another store."""

    def xid(self, format_id: int, gtrid: str, bqual: str) -> Any: ...

    def tpc_begin(self, xid: Any) -> Any: ...

    def tpc_prepare(self) -> Any: ...

    def tpc_commit(self, xid: Any = None) -> Any: ...

    def tpc_rollback(self, xid: Any = None) -> Any: ...

    def tpc_recover(self) -> Sequence[Any]:
        """Xids in doubt, until they are durably settled; each readable as (format_id, gtrid, bqual)."""

    def close(self) -> None: ...


@runtime_checkable
class RemembersHeuristic(Protocol):
    """A connection to what remembers that a branch was settled without its coordinator: a `Session`."""

    def forget(self, xid: Any) -> Any:
        """The coordinator has heard."""


class Participant(Protocol):
    """A resource that takes part in distributed transactions beside the store."""

    @property
    def name(self) -> str:
        """Its branches' bqual: 1 to 64 ASCII characters, another for every participant, and never changed."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its connections raise."""

    def connect(self) -> TwoPhaseConnection:
        """A connection of its own for one transaction, or for recovery; it is closed when that ends."""
