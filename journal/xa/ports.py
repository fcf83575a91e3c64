"""The interfaces that XA needs: where branches live, where outcomes are kept, and which other resources take part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from journal.append.operations import PlainOperation
from journal.errors import JournalError
from journal.store.transactions import NotDurable

ClockMs = Callable[[], float]
"""A clock that gives milliseconds since 1970."""


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
    """An accepted prepare of a store, which says whether its transaction holds something that is not durable. The
    prepare of a journal does not have this."""

    @property
    def not_durable(self) -> NotDurable: ...


class Transactions(Protocol):
    """The transactions of branches: those of a message store, or of a journal itself. Thread-safe."""

    def begin(self) -> int: ...

    def is_empty(self, tx: int) -> bool:
        """Whether `tx`, which is not prepared, has no operations. Raises TransactionUnknownError."""

    def prepare(self, tx: int, data: bytes) -> Waitable: ...

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Waitable:
        """Commit `tx`. The operations `then` take effect in the same group, after those of the transaction."""

    def rollback(self, tx: int) -> Waitable: ...


class OutcomeRecords(Protocol):
    """The journal below the store, which keeps outcomes. Thread-safe."""

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
    """The results of a load that XA needs. `LoadedStore` and `XaLoader.loaded` have them."""

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
        """Xids in doubt, until their settlement is durable; each can be read as (format_id, gtrid, bqual)."""

    def close(self) -> None: ...


@runtime_checkable
class RemembersHeuristic(Protocol):
    """A participant's connection that remembers branches settled without their coordinator: a `Session`."""

    def forget(self, xid: Any) -> Any:
        """Note that the coordinator was told the outcome, which need not be remembered any more."""


class Participant(Protocol):
    """A resource that takes part in distributed transactions together with the store."""

    @property
    def name(self) -> str:
        """The bqual of the participant's branches: 1 to 64 ASCII characters, different for every participant, and never
        changed."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The errors that its connections raise."""

    def connect(self) -> TwoPhaseConnection:
        """A new connection for one transaction, or for a recovery. It is closed at the end of that."""
