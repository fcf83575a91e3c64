"""Groups: a group is what one group commit writes. Each accepted operation is put into a frame of the open group.

Hot path: an operation is kept as a tuple, and sealing a frame makes its columns (`journal.wire.operations`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from journal.append.completion import Completion
from journal.append.operations import NOTHING, Amount, AnyOperation, Append, DeletedRecords, NewRecords
from journal.kafka.ports import Consumed, Sent
from journal.limits import FRAME_OVERHEAD_BYTES, OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, UPDATE, FrameColumns, OperationType
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.ids import SHARD_MASK, shard_of
from journal.wire.operations import FrameOperations, FurtherOperation


class FrameOrigin(NamedTuple):
    """The part of a frame's header that all frames of an activation share."""

    journal: bytes
    epoch: int
    node: str


class FrameNumbers(NamedTuple):
    """The number of the last frame of each shard (0 if it has none), and of the last group."""

    frames: tuple[int, ...]
    group: int


class _Frame:
    """A frame that takes operations until its group is sealed."""

    __slots__ = ("header", "operations")

    def __init__(self) -> None:
        self.header = FrameColumns()
        self.operations = FrameOperations()

    def value(self) -> bytes:
        return b"".join([self.header.SerializeToString(), *self.operations.columns()])


_NONE = FrameOperations()
"""Stands for the operations of a frame in a shard that has none: nothing has room there."""


class Group:
    """Operations accepted since the last group was taken. Not thread-safe: the journal's lock guards it."""

    __slots__ = (
        "_add",
        "_frame_bytes_max",
        "_frames",
        "_last",
        "_room",
        "_room_behind_commit",
        "beside",
        "bytes",
        "completion",
        "consumed",
        "issued",
        "operations",
        "settled",
    )

    def __init__(
        self,
        shards: int,
        frame_bytes_max: int,
        consumed: Consumed | None = None,
        beside: Sequence[Sent] = (),
    ) -> None:
        """`consumed` are offsets that the group's transaction commits too, and `beside` records of other topics."""
        self.completion = Completion()
        self.consumed = consumed
        self.beside = beside
        self.operations = 0
        self.bytes = 0
        self.settled = NOTHING
        """The operations that its commits and rollbacks settle. A worker applies them in one checkpoint with the
        group."""
        self.issued = 0
        self._frame_bytes_max = frame_bytes_max - FRAME_OVERHEAD_BYTES
        self._frames: list[list[_Frame]] = [[] for _ in range(shards)]
        self._room = [0] * shards
        """By shard, how many bytes its last frame takes yet. A frame with a COMMIT takes only operations of
        transactions, because sealing would put any other before it."""
        self._room_behind_commit = [0] * shards
        self._last = [_NONE] * shards
        """By shard, the operations of its last frame."""
        self._add = [_NONE.adds.extend] * shards
        """By shard, the method that appends adds to its last frame; looking it up each time would cost as much again.
        """

    def __bool__(self) -> bool:
        return self.operations > 0

    def put(
        self,
        shard: int,
        type_: OperationType.ValueType,
        record_id: int,
        kind: int,
        data: bytes,
        replaceable: bool = False,
        subject: int = 0,
    ) -> None:
        """Put in a plain add, update or delete."""
        size = len(data) + OPERATION_OVERHEAD_BYTES
        if type_ == ADD:
            self.put_add(record_id, kind, data, size)
            return
        if size > self._room[shard]:
            self._begin_frame(shard)
        self._room[shard] -= size
        if type_ == UPDATE:
            self._last[shard].updates.extend((record_id, kind, data, subject, replaceable))
        elif type_ == DELETE:
            self._last[shard].deletes[record_id] = None
        else:
            self._last[shard].others.append(
                FurtherOperation(type_, record_id, kind, data, subject, replaceable, 0, 0, 0)
            )
        self.operations += 1
        self.bytes += size

    def put_add(self, record_id: int, kind: int, data: bytes, size: int) -> None:
        """Put in an add that takes `size` bytes. Hot path."""
        room = self._room
        shard = (record_id & SHARD_MASK) % len(room)
        left = room[shard] - size
        if left < 0 or record_id in self._last[shard].deletes:
            self._begin_frame(shard)
            left = room[shard] - size
        room[shard] = left
        self._add[shard]((record_id, kind, data))
        self.operations += 1
        self.bytes += size

    def put_add_with_update(
        self, shard: int, record_id: int, kind: int, data: bytes, update_kind: int, subject: int
    ) -> None:
        """Put in an add of a new record, and an update without data. Hot path."""
        size = len(data) + 2 * OPERATION_OVERHEAD_BYTES
        if size > self._room[shard] or record_id in self._last[shard].deletes:
            self.put(shard, ADD, record_id, kind, data)
            self.put(shard, UPDATE, record_id, update_kind, b"", False, subject)
            return
        self._room[shard] -= size
        # a signal's handler may raise in between: an update without its add has no effect
        self._last[shard].updates.extend((record_id, update_kind, b"", subject, False))
        self._add[shard]((record_id, kind, data))
        self.operations += 2
        self.bytes += size

    def put_update_and_delete(self, shard: int, record_id: int, kind: int, data: bytes, subject: int) -> None:
        """Put in an update, and the delete of its record. Hot path."""
        size = len(data) + 2 * OPERATION_OVERHEAD_BYTES
        if size > self._room[shard]:
            self.put(shard, UPDATE, record_id, kind, data, False, subject)
            self.put(shard, DELETE, record_id, 0, b"")
            return
        self._room[shard] -= size
        last = self._last[shard]
        last.deletes[record_id] = None  # a signal's handler may raise behind it: nothing is left of a deleted record
        last.updates.extend((record_id, kind, data, subject, False))
        self.operations += 2
        self.bytes += size

    def put_all(self, operations: Sequence[AnyOperation]) -> None:
        """`put` for operations that belong together, each in its record's shard."""
        shards = len(self._frames)
        for operation in operations:
            if isinstance(operation, NewRecords):
                self.put_new(shard_of(operation.ids[0], shards), *operation)
            elif isinstance(operation, DeletedRecords):
                self.put_deleted(shard_of(operation.ids[0], shards), *operation)
            else:
                self.put(shard_of(operation[1], shards), *operation)

    def put_new(
        self, shard: int, kind: int, ids: Sequence[int], data: Sequence[bytes], update_kind: int, subject: int
    ) -> None:
        """Put in an add for each of these new records, and an update without data. Hot path."""
        count = len(ids)
        size = sum(map(len, data)) + 2 * count * OPERATION_OVERHEAD_BYTES
        if len(data[0]) + OPERATION_OVERHEAD_BYTES > self._room[shard]:
            self._begin_frame(shard)
        if size > self._room[shard] or not self._last[shard].deletes.keys().isdisjoint(ids):
            if count == 1:
                self.put_add_with_update(shard, ids[0], kind, data[0], update_kind, subject)
                return
            half = count // 2
            self.put_new(shard, kind, ids[:half], data[:half], update_kind, subject)
            self.put_new(shard, kind, ids[half:], data[half:], update_kind, subject)
            return
        last = self._last[shard]
        updates = zip(ids, repeat(update_kind), repeat(b""), repeat(subject), repeat(False))
        last.updates.extend(chain.from_iterable(updates))
        last.adds.extend(chain.from_iterable(zip(ids, repeat(kind), data)))
        self._count(shard, 2 * count, size)

    def put_deleted(self, shard: int, ids: Sequence[int], kind: int, data: bytes, subject: int) -> None:
        """Put in an update for each of these records, and the delete. Hot path."""
        count = len(ids)
        size = count * (len(data) + 2 * OPERATION_OVERHEAD_BYTES)
        if len(data) + OPERATION_OVERHEAD_BYTES > self._room[shard]:
            self._begin_frame(shard)
        if size > self._room[shard]:
            if count == 1:
                self.put_update_and_delete(shard, ids[0], kind, data, subject)
                return
            half = count // 2
            self.put_deleted(shard, ids[:half], kind, data, subject)
            self.put_deleted(shard, ids[half:], kind, data, subject)
            return
        last = self._last[shard]
        last.deletes.update(dict.fromkeys(ids))
        last.updates.extend(chain.from_iterable(zip(ids, repeat(kind), repeat(data), repeat(subject), repeat(False))))
        self._count(shard, 2 * count, size)

    def _count(self, shard: int, operations: int, size: int) -> None:
        self._room[shard] -= size
        self.operations += operations
        self.bytes += size

    def _begin_frame(self, shard: int) -> None:
        frame = _Frame()
        self._frames[shard].append(frame)
        self._last[shard] = frame.operations
        self._add[shard] = frame.operations.adds.extend
        self._room[shard] = self._frame_bytes_max
        self._room_behind_commit[shard] = 0

    def put_append(self, op: Append) -> None:
        """Put in any operation."""
        shard, size = op.shard, op.size
        if not op.tx:
            self.put(shard, op.type, op.id, op.kind, op.data, op.replaceable, op.subject)
            return
        room = self._room_behind_commit if self._room_behind_commit[shard] else self._room
        if size > room[shard]:
            self._begin_frame(shard)
            room = self._room
        room[shard] -= size
        if op.type == COMMIT and room is self._room:
            self._room_behind_commit[shard], room[shard] = room[shard], 0
        self._last[shard].others.append(
            FurtherOperation(op.type, op.id, op.kind, op.data, op.subject, op.replaceable, op.tx, op.covers, op.shards)
        )
        self.operations += 1
        self.bytes += size

    def settle(self, staged: Amount) -> None:
        """Count the staged operations that a commit or rollback, which was just put in, will settle."""
        operations, size = self.settled
        self.settled = Amount(operations + staged.operations, size + staged.bytes)

    def put_heartbeat(self, shard: int) -> None:
        """Begin a frame without operations, if the group has no frame for the shard yet."""
        if not self._frames[shard]:
            self._begin_frame(shard)

    @property
    def frames(self) -> int:
        return sum(len(frames) for frames in self._frames)

    def shards(self) -> Iterator[int]:
        """The shards that the group touches."""
        return (shard for shard, frames in enumerate(self._frames) if frames)

    def seal(self, origin: FrameOrigin, last: FrameNumbers) -> FrameNumbers:
        """Number the frames behind `last`; returns the numbers of the last frames now. Call it once."""
        numbers = list(last.frames)
        group = last.group + 1
        for shard, frames in enumerate(self._frames):
            for frame in frames:
                frame.header = FrameColumns(
                    magic=MAGIC,
                    format=FORMAT,
                    journal=origin.journal,
                    epoch=origin.epoch,
                    node=origin.node,
                    group=group,
                    previous=numbers[shard],
                    number=numbers[shard] + 1,
                    issued=self.issued,
                    count=len(frame.operations),
                    last=frame is frames[-1],
                )
                numbers[shard] += 1
        return FrameNumbers(tuple(numbers), group)

    def records(self, topic: str) -> list[Sent]:
        """The WAL records of a sealed group."""
        return [
            Sent(topic, shard, None, frame.value()) for shard, frames in enumerate(self._frames) for frame in frames
        ]

    def places(self) -> list[tuple[int, int]]:
        """The shard and the frame number of each of the `records` of a sealed group."""
        return [(shard, frame.header.number) for shard, frames in enumerate(self._frames) for frame in frames]
