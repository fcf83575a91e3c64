"""Operations as callers give them, before they are bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from journal.limits import OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import OperationType


class Append(NamedTuple):
    """An operation on its way into a frame of `shard`."""

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
        """An upper bound of its bytes in a frame."""
        return len(self.data) + OPERATION_OVERHEAD_BYTES


class Amount(NamedTuple):
    """A number of operations, and an upper bound of their bytes in frames."""

    operations: int
    bytes: int


NOTHING = Amount(0, 0)


PlainOperation = tuple[OperationType.ValueType, int, int, bytes, bool, int]
"""An add, update or delete outside of transactions: type, id, kind, data, replaceable, subject."""


class NewRecords(NamedTuple):
    """Adds of records of one virtual shard, each with an update behind it that has no data: messages, and the queue
    that they are in. As so many operations they cost three times as much.
    """

    kind: int
    ids: Sequence[int]
    data: Sequence[bytes]
    update_kind: int
    subject: int
    """The updates have this kind and this subject."""


class DeletedRecords(NamedTuple):
    """Deletes of records of one virtual shard, each with an update before it: of one kind, data and subject, as those
    are that acknowledge the messages of a queue. As so many operations they cost three times as much.
    """

    ids: Sequence[int]
    kind: int
    """The updates have this kind, and the data and the subject below."""
    data: bytes
    subject: int


AnyOperation = PlainOperation | NewRecords | DeletedRecords
