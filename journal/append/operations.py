"""Operations in the form in which callers give them, before they are packed into frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from journal.limits import OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import OperationType


class Append(NamedTuple):
    """An accepted operation for a frame of `shard`."""

    shard: int
    type: OperationType.ValueType
    id: int = 0
    kind: int = 0
    data: bytes = b""
    replaceable: bool = False
    subject: int = 0
    tx: int = 0
    covers: int = 0
    shards: int = 0

    @property
    def size(self) -> int:
        """An upper bound of the bytes that it takes in a frame."""
        return len(self.data) + OPERATION_OVERHEAD_BYTES


class Amount(NamedTuple):
    """A number of operations, and an upper bound of their bytes in frames."""

    operations: int
    bytes: int


NOTHING = Amount(0, 0)


PlainOperation = tuple[OperationType.ValueType, int, int, bytes, bool, int]
"""An add, update or delete outside of transactions: type, id, kind, data, replaceable, subject."""


class NewRecords(NamedTuple):
    """Adds of records of one virtual shard, each followed by an update without data: for example messages, and the
    queue that they are in. Separate calls would take three times as long."""

    kind: int
    ids: Sequence[int]
    data: Sequence[bytes]
    update_kind: int
    subject: int
    """The subject of the updates. `update_kind` is their kind."""


class DeletedRecords(NamedTuple):
    """Deletes of records of one virtual shard, each after an update. All updates have the same kind, data and subject,
    like those that acknowledge the messages of one queue. Separate calls would take three times as long."""

    ids: Sequence[int]
    kind: int
    """The kind of the updates. `data` and `subject` are those of the updates too."""
    data: bytes
    subject: int


AnyOperation = PlainOperation | NewRecords | DeletedRecords
