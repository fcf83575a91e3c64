"""The operations of a journal that a message store needs. `Journal`, `BlockingJournal` and `LocalJournal` have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from journal.append.completion import Completion
from journal.append.operations import AnyOperation, PlainOperation
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits


class StoreJournal(Protocol):
    """An active journal. Thread-safe; accepted operations take effect in the order of their acceptance."""

    @property
    def shards(self) -> int:
        """P, the number of shards."""

    @property
    def limits(self) -> Limits:
        """The bounds of the journal."""

    @property
    def current(self) -> bool:
        """Whether this node may deliver messages now."""

    @property
    def ended(self) -> Completion:
        """A future that is done when the journal is not active any more; its error is the reason."""

    def new_id(self, virtual_shard: int = 0) -> int:
        """An id that no record has had."""

    def is_taken(self, record_id: int) -> bool:
        """Whether a record has that id, or will have it if a transaction commits."""

    def new_volatile_id(self, virtual_shard: int = 0) -> int:
        """An id for a thing that is never stored in the journal. No other thing has had it, or will get it."""

    def add(self, record_id: int, kind: int, data: bytes, *, tx: int = 0) -> Completion: ...

    def update(
        self, record_id: int, kind: int, data: bytes, *, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion: ...

    def delete(self, record_id: int, *, tx: int = 0) -> Completion: ...

    def add_with_update(
        self, virtual_shard: int, kind: int, data: bytes, update_kind: int, subject: int
    ) -> tuple[int, Completion]:
        """Add a record with a new id, and attach an update without data to it, in one group."""

    def delete_with_update(self, record_id: int, kind: int, data: bytes, subject: int) -> Completion:
        """Attach an update to a record, and delete the record, in one group."""

    def append_all(self, operations: Sequence[AnyOperation], *, tx: int = 0, wait: bool = True) -> Completion:
        """Append operations that take effect together: one group has all of them or none; with `tx`, they belong to
        that transaction.

        Without `wait` a full queue refuses them at once.

        Raises InvalidOperationError for more than one group may have: `queue_operations_max`, `queue_bytes_max`.
        """

    def take_in(
        self, operations: Sequence[AnyOperation], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        """Append operations on new records in one Kafka transaction with the offsets of the consumed records, and with
        records of other topics in `beside`.

        All of it is written, or nothing.
        """

    def new_ids(self, virtual_shards: Sequence[int]) -> list[int]:
        """`new_id` for each of these virtual shards."""

    def begin(self, tx: int | None = None) -> int: ...

    def prepare(self, tx: int, data: bytes = b"") -> Completion: ...

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Completion:
        """Commit the operations of `tx`, and after them plain operations in the same group."""

    def rollback(self, tx: int) -> Completion: ...

    def room(self) -> Completion:
        """A future that is done when appends that met FullError may be tried again."""

    def flush(self) -> Completion:
        """A future that is done when everything accepted so far is durable."""

    def read(self, record_id: int) -> bytes | None:
        """The data of a record in the local copy; None if the copy does not have it (yet)."""

    def read_at(self, record_id: int, offsets: tuple[int, int], timeout_s: float = 15.0) -> bytes | None:
        """The data of a record that was added between two offsets of the WAL, which `Completion.offsets` gives."""

    def applied(self, shard: int) -> int:
        """The WAL offset up to which the local copy has applied a shard; -1 before its first mark."""
