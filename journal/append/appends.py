"""`Appends`: the calls of a broker node on an active journal, in Kafka or in a local directory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from journal.append.callbacks import require_no_callback
from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.operations import AnyOperation, PlainOperation
from journal.errors import RecordMissingError
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits


class Records(Protocol):
    """Reads single records back while a journal is active. Thread-safe."""

    def read(self, record_id: int) -> bytes | None: ...

    def read_at(self, record_id: int, offsets: tuple[int, int], timeout_s: float) -> bytes | None: ...

    def applied(self, shard: int) -> int: ...


class Appends(ABC):
    """Appends and single reads, the same for every kind of journal. Thread-safe.

    An argument of a wrong type raises TypeError, and changes nothing. After `close` every call raises ClosedError, or
    the error that fenced or failed the journal before.
    """

    _core: Core | None = None
    """The core that takes appends; None before the journal is started."""

    @abstractmethod
    def require_core(self) -> Core:
        """The core that takes appends. Raises StateError before the journal is started."""

    @abstractmethod
    def require_lookup(self) -> Records:
        """The reader of single records. Raises StateError before the journal is started."""

    @property
    def limits(self) -> Limits:
        """The bounds of appends. Raises StateError before the journal is started."""
        return self.require_core().limits

    @property
    def ended(self) -> Completion:
        """A future that is done, with the reason, when this node stops being active. Raises StateError before the
        journal starts."""
        return self.require_core().ended

    def new_id(self, virtual_shard: int = 0) -> int:
        """An id that no record has had. Records of one virtual shard (0 to 1023) share a shard, and so an order."""
        return self.require_core().new_id(virtual_shard)

    def is_taken(self, record_id: int) -> bool:
        """Whether a record has that id, or will have it if a transaction commits. Raises InvalidOperationError for a
        number that is no id."""
        return self.require_core().is_taken(record_id)

    def new_volatile_id(self, virtual_shard: int = 0) -> int:
        """An id for a thing that is never stored in the journal. It is never given out again. (An id of `new_id` is
        given out again if the node crashes before an append with this id or a later one is durable.)"""
        return self.require_core().new_volatile_id(virtual_shard)

    def add(self, record_id: int, kind: int, data: bytes, *, tx: int = 0) -> Completion:
        """Add a record. Raises RecordExistsError, LockedError, FullError, InvalidOperationError, StateError."""
        return (self._core or self.require_core()).add(record_id, kind, data, tx)

    def update(
        self, record_id: int, kind: int, data: bytes, *, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion:
        """Attach data to a record. A replaceable update replaces the earlier one of the same kind and subject.

        Raises RecordMissingError, and what `add` raises.
        """
        return self.require_core().update(record_id, kind, data, replaceable, subject, tx)

    def delete(self, record_id: int, *, tx: int = 0) -> Completion:
        """Delete a record with its updates. Raises RecordMissingError, and what `add` raises."""
        return self.require_core().delete(record_id, tx)

    def try_update(
        self, record_id: int, kind: int, data: bytes, *, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion | None:
        """`update`, or None if there is no such record."""
        try:
            return self.update(record_id, kind, data, replaceable=replaceable, subject=subject, tx=tx)
        except RecordMissingError:
            return None

    def try_delete(self, record_id: int, *, tx: int = 0) -> Completion | None:
        """`delete`, or None if there is no such record."""
        try:
            return self.delete(record_id, tx=tx)
        except RecordMissingError:
            return None

    def begin(self, tx: int | None = None) -> int:
        """Begin a transaction with the number `tx`, or with a free number. An operation with a new `tx` begins it
        too."""
        return self.require_core().transactions.begin(tx)

    def is_empty(self, tx: int) -> bool:
        """Whether `tx` has no operations. Raises TransactionUnknownError."""
        return self.require_core().transactions.is_empty(tx)

    def prepare(self, tx: int, data: bytes = b"", *, then: Sequence[PlainOperation] = ()) -> Completion:
        """Make `tx` wait, through every crash, for commit or rollback. `data` names it (an xid).

        The completions of its operations are told its outcome, and nothing before. Plain operations `then` are in the
        same group, and take effect at once. Raises TransactionPreparedError, FullError, or the error that refuses one
        of `then` (LockedError if `tx` itself holds the lock); nothing is changed then.
        """
        return self.require_core().transactions.prepare(tx, data, then)

    def add_with_update(
        self, virtual_shard: int, kind: int, data: bytes, update_kind: int, subject: int
    ) -> tuple[int, Completion]:
        """Add a record with a new id, and attach an update without data to it: both in one group. Returns the id and
        the group's completion.

        A message and its place in a queue are stored with this call. Raises what `new_id` and `append_all` raise.
        """
        return (self._core or self.require_core()).add_with_update(virtual_shard, kind, data, update_kind, subject)

    def delete_with_update(self, record_id: int, kind: int, data: bytes, subject: int) -> Completion:
        """Attach an update to a record, and delete it: both in one group. Raises what `append_all` raises."""
        return (self._core or self.require_core()).delete_with_update(record_id, kind, data, subject)

    def append_all(self, operations: Sequence[AnyOperation], *, tx: int = 0, wait: bool = True) -> Completion:
        """Append operations (type, id, kind, data, replaceable, subject) that take effect together: all in one group,
        or all in the transaction `tx`. Without `wait` a full queue refuses them at once, even if other appends wait for
        room.

        Many similar records may be in columns: `NewRecords` (with ids of `new_ids`, for example) and `DeletedRecords`,
        of `journal.append.operations`, are `add_with_update` and `delete_with_update` for many, at a fraction of the
        cost.

        Raises the error of the first operation that is refused, and InvalidOperationError for more than a group takes
        (`queue_operations_max`, `queue_bytes_max`); nothing is appended then.
        """
        return self.require_core().append_all(operations, tx, wait=wait)

    def take_in(
        self, operations: Sequence[AnyOperation], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        """Append operations on new records in a Kafka transaction of their own. The transaction also commits the
        offsets of the consumed records, and contains records of other topics in `beside`. All of this is written, or
        nothing. One call at a time.

        The completion may be told NotTakenInError: then consume again from the committed offsets. Raises FullError if
        the queue has no room for the group, StateError before the last such group is done, and what `append_all`
        raises.
        """
        return self.require_core().take_in(operations, consumed, beside)

    def new_ids(self, virtual_shards: Sequence[int]) -> list[int]:
        """`new_id` for each of these virtual shards."""
        return self.require_core().new_ids(virtual_shards)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Completion:
        """Make the operations of `tx` take effect, and after them plain operations `then`, in the same group.

        Raises TransactionUnknownError, FullError, or the error that refuses one of `then`; nothing is changed then.
        """
        return self.require_core().transactions.commit(tx, then)

    def rollback(self, tx: int) -> Completion:
        """Drop the operations of `tx`. Raises TransactionUnknownError, and FullError if the queue has no room for a
        ROLLBACK, which is needed if operations are staged in the WAL."""
        return self.require_core().transactions.rollback(tx)

    def read(self, record_id: int) -> bytes | None:
        """The data of a record in the local copy; None if the copy does not have it (yet)."""
        return self.require_lookup().read(record_id)

    def read_at(self, record_id: int, offsets: tuple[int, int], timeout_s: float = 15.0) -> bytes | None:
        """The data of a record, from the frames between two WAL offsets, which `Completion.offsets` gives."""
        require_no_callback("read from the WAL")
        return self.require_lookup().read_at(record_id, offsets, timeout_s)

    def applied(self, shard: int) -> int:
        """The WAL offset up to which the local copy has applied a shard; -1 before its first mark."""
        return self.require_lookup().applied(shard)

    def room(self) -> Completion:
        """A future that is done when the queue has room again, first come first served."""
        return self.require_core().room()

    def flush(self) -> Completion:
        """A future that is done when everything accepted so far is committed."""
        return self.require_core().flush()
