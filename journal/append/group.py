"""Groups: a group is what one group commit writes. Each accepted operation is put into a frame of the open group.

Hot path: the bytes before an operation's data are packed at once (`journal.wire.operations`), the data are kept as the
caller's object, and sealing a frame joins all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from journal.append.completion import Completion
from journal.append.operations import NOTHING, Amount, AnyOperation, Append, DeletedRecords, NewRecords
from journal.kafka.ports import Consumed, Sent
from journal.limits import FRAME_OVERHEAD_BYTES, OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Frame, Operation, OperationType
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.ids import SHARD_MASK, shard_of
from journal.wire.operations import (
    ADD_STARTS,
    DATA_LENGTHS,
    KIND_FIELDS,
    SHORT_DATA_BYTES,
    delete_head,
    delete_heads,
    message_element,
    operation_parts,
    pack_add,
    update_head,
    update_heads,
)


class FrameOrigin(NamedTuple):
    """The part of a frame's header that all frames of an activation share."""

    journal: bytes
    epoch: int
    node: str


class FrameNumbers(NamedTuple):
    """The number of the last frame of each shard (0 if it has none), and of the last group."""

    frames: tuple[int, ...]
    group: int


_PAIR = 4
"""The number of parts of two operations: for each the bytes before the data, and the data."""


def _no_frame(_: Sequence[bytes]) -> None:
    raise AssertionError("a shard without room for an operation begins a frame first")


class _Packed:
    """A frame under construction; its operations are packed already."""

    __slots__ = ("header", "parts")

    def __init__(self) -> None:
        self.header = Frame()
        self.parts: list[bytes] = [b""]
        """The parts of the frame: a place for the header, then two parts for each operation."""

    @property
    def count(self) -> int:
        return (len(self.parts) - 1) // 2

    def value(self) -> bytes:
        self.parts[0] = self.header.SerializeToString()
        return b"".join(self.parts)


class Group:
    """Operations accepted since the last group was taken. Not thread-safe: the journal's lock guards it."""

    __slots__ = (
        "_add",
        "_frame_bytes_max",
        "_frames",
        "_room",
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
        self._frames: list[list[_Packed]] = [[] for _ in range(shards)]
        self._room = [0] * shards
        self._add: list[Callable[[Sequence[bytes]], None]] = [_no_frame] * shards
        """The method that adds parts to the last frame of each shard, because looking it up each time would take as
        long again. All parts of an operation are added in one call: a signal's handler may raise between two calls, and
        a frame with half an operation would be useless."""

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
        if size > self._room[shard]:
            self._begin_frame(shard)
        self._room[shard] -= size
        self._add[shard](operation_parts(type_, record_id, kind, data, replaceable, subject))
        self.operations += 1
        self.bytes += size

    def put_add(self, record_id: int, kind: int, data: bytes, size: int) -> None:
        """Put in an add that takes `size` bytes. Hot path: for short data it takes a third less time than `put`."""
        room = self._room
        shard = (record_id & SHARD_MASK) % len(room)
        length = size - OPERATION_OVERHEAD_BYTES
        if length >= SHORT_DATA_BYTES:
            self.put(shard, ADD, record_id, kind, data)
            return
        left = room[shard] - size
        if left < 0:
            self._begin_frame(shard)
            left = room[shard] - size
        room[shard] = left
        head = pack_add(ADD_STARTS[length], record_id, KIND_FIELDS[kind], DATA_LENGTHS[length])
        self._add[shard]((head, data))
        self.operations += 1
        self.bytes += size

    def put_add_with_update(
        self, shard: int, record_id: int, kind: int, data: bytes, update_kind: int, subject: int
    ) -> None:
        """Put in an add, and an update without data. Hot path: for short data both are done in one step."""
        length = len(data)
        size = length + 2 * OPERATION_OVERHEAD_BYTES
        if size > self._room[shard] or length >= SHORT_DATA_BYTES:
            self.put(shard, ADD, record_id, kind, data)
            self.put(shard, UPDATE, record_id, update_kind, b"", False, subject)
            return
        self._room[shard] -= size
        head = pack_add(ADD_STARTS[length], record_id, KIND_FIELDS[kind], DATA_LENGTHS[length])
        self._add[shard]((head, data, update_head(record_id, update_kind, subject), b""))
        self.operations += 2
        self.bytes += size

    def put_update_and_delete(self, shard: int, record_id: int, kind: int, data: bytes, subject: int) -> None:
        """Put in an update, and the delete of its record. Hot path: if the update has no data, both are done in one
        step."""
        if data or self._room[shard] < 2 * OPERATION_OVERHEAD_BYTES:
            self.put(shard, UPDATE, record_id, kind, data, False, subject)
            self.put(shard, DELETE, record_id, 0, b"")
            return
        self._room[shard] -= 2 * OPERATION_OVERHEAD_BYTES
        self._add[shard]((update_head(record_id, kind, subject), b"", delete_head(record_id), b""))
        self.operations += 2
        self.bytes += 2 * OPERATION_OVERHEAD_BYTES

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
        """Put in an add for each of these records, and an update without data. Hot path."""
        lengths = [*map(len, data)]
        if max(lengths) >= SHORT_DATA_BYTES:
            for record_id, each in zip(ids, data, strict=True):
                self.put(shard, ADD, record_id, kind, each)
                self.put(shard, UPDATE, record_id, update_kind, b"", False, subject)
            return
        kind_field = KIND_FIELDS[kind]
        parts = [b""] * (_PAIR * len(ids))
        parts[0::_PAIR] = [
            pack_add(ADD_STARTS[length], record_id, kind_field, DATA_LENGTHS[length])
            for record_id, length in zip(ids, lengths, strict=True)
        ]
        parts[1::_PAIR] = data
        parts[2::_PAIR] = update_heads(ids, update_kind, b"", subject)
        self._put_pairs(shard, parts, lengths)

    def put_deleted(self, shard: int, ids: Sequence[int], kind: int, data: bytes, subject: int) -> None:
        """Put in an update for each of these records, and the delete. Hot path."""
        if len(data) >= SHORT_DATA_BYTES:
            for record_id in ids:
                self.put(shard, UPDATE, record_id, kind, data, False, subject)
                self.put(shard, DELETE, record_id, 0, b"")
            return
        count = len(ids)
        parts = [b""] * (_PAIR * count)
        parts[0::_PAIR] = update_heads(ids, kind, data, subject)
        if data:
            parts[1::_PAIR] = [data] * count
        parts[2::_PAIR] = delete_heads(ids)
        self._put_pairs(shard, parts, [len(data)] * count)

    def _put_pairs(self, shard: int, parts: list[bytes], lengths: Sequence[int]) -> None:
        """Put in pairs of operations, given as their parts. The first operation of each pair has data, whose length is
        in `lengths`; the second has none. All pairs that fit into a frame are added in one call, so that an interrupt
        leaves all of them or none."""
        size = sum(lengths) + 2 * OPERATION_OVERHEAD_BYTES * len(lengths)
        if lengths[0] + OPERATION_OVERHEAD_BYTES > self._room[shard]:
            self._begin_frame(shard)
        if size <= self._room[shard]:
            self._put_parts(shard, parts, size)
            return
        ends = [*accumulate([length + 2 * OPERATION_OVERHEAD_BYTES for length in lengths])]
        begin, before = 0, 0
        while begin < len(ends):
            end = bisect_right(ends, before + self._room[shard], begin)
            if end > begin:
                self._put_parts(shard, parts[_PAIR * begin : _PAIR * end], ends[end - 1] - before)
            else:  # the pair does not fit, so the frame ends before it or within it
                middle, end = _PAIR * begin + 2, begin + 1
                self._put_parts(shard, parts[middle - 2 : middle], lengths[begin] + OPERATION_OVERHEAD_BYTES)
                self._put_parts(shard, parts[middle : middle + 2], OPERATION_OVERHEAD_BYTES)
            begin, before = end, ends[end - 1]

    def _put_parts(self, shard: int, parts: Sequence[bytes], size: int) -> None:
        """Put operations, given as two parts each, into one frame."""
        if size > self._room[shard]:
            self._begin_frame(shard)
        self._room[shard] -= size
        self._add[shard](parts)
        self.operations += len(parts) // 2
        self.bytes += size

    def _begin_frame(self, shard: int) -> None:
        frame = _Packed()
        self._frames[shard].append(frame)
        self._add[shard] = frame.parts.extend
        self._room[shard] = self._frame_bytes_max

    def put_append(self, op: Append) -> None:
        """Put in any operation."""
        if not op.tx:
            self.put(op.shard, op.type, op.id, op.kind, op.data, op.replaceable, op.subject)
            return
        size = op.size
        if size > self._room[op.shard]:
            self._begin_frame(op.shard)
        self._room[op.shard] -= size
        element = message_element(
            Operation(
                type=op.type,
                id=op.id,
                kind=op.kind,
                data=op.data,
                replaceable=op.replaceable,
                subject=op.subject,
                tx=op.tx,
                covers=op.covers,
                shards=op.shards,
            )
        )
        self._add[op.shard]((element, b""))
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
                frame.header = Frame(
                    magic=MAGIC,
                    format=FORMAT,
                    journal=origin.journal,
                    epoch=origin.epoch,
                    node=origin.node,
                    group=group,
                    previous=numbers[shard],
                    number=numbers[shard] + 1,
                    issued=self.issued,
                    count=frame.count,
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
