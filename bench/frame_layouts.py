"""Three layouts of the operations in a frame, compared by size and by the time that reading them takes.

    python -m bench.frame_layouts

fixed     The writer's own frame: columns of 8, 4 and 1 bytes a value.
narrow    The same columns, but ids and subjects are differences as zigzag varints, and lengths are varints.
messages  One protobuf message for each operation, packed as releases before 0.1.0 packed them.

A frame has 250 messages of 10 addresses (an add and an update each), and 250 acknowledgements (an update and a delete).
Reading gives types, ids, kinds, subjects and the data of all operations: as Python's lists and bytes, without numpy; or
as arrays of numpy, with the ends of the data in place of the data.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import accumulate
from struct import Struct

import cramjam
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.scene import JOURNAL_UUID
from bench.workload import RECORD_KIND
from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.limits import Limits
from journal.v1.journal_pb2 import DELETE, FrameColumns, Operation
from journal.wire.frames import Frame
from journal.wire.ids import make_id
from journal.wire.operations import eight_bytes_each, four_bytes_each, varint

MESSAGES = 250
ADDRESSES = 10
DATA_BYTES = (16, 100, 1024)
REPEATS = 30
ZSTD_LEVEL = 3
UPDATE_KIND = 32


def data_of(size: int, source: random.Random) -> bytes:
    """Text that compresses to about half, as JSON would."""
    return source.randbytes(size // 2).hex().encode()


def frame_bytes(size: int) -> bytes:
    """A frame as the writer makes it, with data of `size` bytes."""
    source = random.Random(size)
    group = Group(1, Limits().frame_bytes_max)
    for sequence in range(5000, 5000 + MESSAGES):
        address = source.randrange(ADDRESSES)
        queue = address + 1 << 10
        group.put_new(
            0, RECORD_KIND, [make_id(sequence, address)], [data_of(size, source)], UPDATE_KIND, address + 1 << 10
        )
        group.put_deleted(0, [make_id(sequence - 900, address)], UPDATE_KIND, b"", queue)
    group.issued = 5000 + MESSAGES
    group.seal(FrameOrigin(JOURNAL_UUID, 1, "node-1"), FrameNumbers((8,), 8))
    (record,) = group.records("wal")
    assert record.value is not None
    return record.value


# ---- the other layouts ----------------------------------------------------------------------------------------------


def zigzag(number: int) -> int:
    return number << 1 if number >= 0 else ~number << 1 | 1


def differences(numbers: tuple[int, ...]) -> bytes:
    return b"".join(varint(zigzag(now - before)) for before, now in zip((0, *numbers), numbers, strict=False))


def narrow_bytes(columns: FrameColumns) -> bytes:
    narrow = FrameColumns()
    narrow.CopyFrom(columns)
    narrow.ids = differences(eight_bytes_each(columns.ids))
    narrow.subjects = differences(eight_bytes_each(columns.subjects))
    narrow.lengths = b"".join(map(varint, four_bytes_each(columns.lengths)))
    return narrow.SerializeToString()


def two_bytes(number: int) -> int:
    """A varint of two bytes, as the little-endian number that struct writes."""
    return number & 0x7F | 0x80 | number >> 7 << 8


_PLAIN, _WITH_SUBJECT = Struct("<BBBqBHBH"), Struct("<BBBqBHBBBqBH")


def message_bytes(columns: FrameColumns, frame: Frame) -> bytes:
    header = FrameColumns()
    header.CopyFrom(columns)
    for name in ("types", "ids", "kinds", "lengths", "subjects", "replaceable", "data"):
        header.ClearField(name)  # type: ignore[arg-type]
    parts = [header.SerializeToString()]
    for op in frame.operations():
        kind, size = two_bytes(op.kind), two_bytes(len(op.data))
        if op.type == DELETE:
            encoded = Struct("<BBBq").pack(8, op.type, 0x11, op.id)
        elif op.subject:
            encoded = _WITH_SUBJECT.pack(8, op.type, 0x11, op.id, 0x18, kind, 0x28, 0, 0x31, op.subject, 0x22, size)
        else:
            encoded = _PLAIN.pack(8, op.type, 0x11, op.id, 0x18, kind, 0x22, size)
        parts.append(varint(12 << 3 | 2) + varint(len(encoded) + len(op.data)) + encoded + op.data)
    return b"".join(parts)


def messages_class() -> Callable[[bytes], Iterator[Operation]]:
    """Parses field 12 as releases before 0.1.0 did."""
    pool = descriptor_pool.Default()
    file = descriptor_pb2.FileDescriptorProto(name="former.proto", syntax="proto3")
    file.dependency.append("journal/v1/journal.proto")
    file.message_type.add(name="Former").field.add(
        name="operations", number=12, label=3, type=11, type_name=".kafka_journal.v1.Operation"
    )
    pool.Add(file)
    parsed = message_factory.GetMessageClass(pool.FindMessageTypeByName("Former"))
    return lambda raw: parsed.FromString(raw).operations  # type: ignore[attr-defined,no-any-return]


FORMER = messages_class()


# ---- reading without numpy ------------------------------------------------------------------------------------------


def read_fixed(raw: bytes) -> object:
    columns = FrameColumns.FromString(raw)
    ids, subjects = eight_bytes_each(columns.ids), eight_bytes_each(columns.subjects)
    data = [*map(BytesIO(columns.data).read, four_bytes_each(columns.lengths))]
    return columns.types, ids, columns.kinds, subjects, data


def varints(column: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in column:
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            yield number
            number = shift = 0
        else:
            shift += 7


def summed(column: bytes) -> list[int]:
    return [*accumulate(number >> 1 ^ -(number & 1) for number in varints(column))]


def read_narrow(raw: bytes) -> object:
    columns = FrameColumns.FromString(raw)
    data = [*map(BytesIO(columns.data).read, varints(columns.lengths))]
    return columns.types, summed(columns.ids), columns.kinds, summed(columns.subjects), data


def read_messages(raw: bytes) -> object:
    return [(op.type, op.id, op.kind, op.subject, op.data) for op in FORMER(raw)]


# ---- reading with numpy ---------------------------------------------------------------------------------------------


def arrays_of_fixed(raw: bytes) -> object:
    columns = FrameColumns.FromString(raw)
    ids, subjects = np.frombuffer(columns.ids, "<i8"), np.frombuffer(columns.subjects, "<i8")
    ends = np.cumsum(np.frombuffer(columns.lengths, "<u4"))
    return np.frombuffer(columns.types, "u1"), ids, np.frombuffer(columns.kinds, "u1"), subjects, ends


def varint_array(column: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    values = np.frombuffer(column, "u1")
    starts = np.flatnonzero(np.concatenate(([True], values[:-1] < 0x80)))
    shifts = 7 * (np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values))))
    return np.add.reduceat((values & 0x7F).astype(np.int64) << shifts, starts)


def summed_array(column: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    numbers = varint_array(column)
    return np.cumsum(numbers >> 1 ^ -(numbers & 1))


def arrays_of_narrow(raw: bytes) -> object:
    columns = FrameColumns.FromString(raw)
    ends = np.cumsum(varint_array(columns.lengths))
    types, kinds = np.frombuffer(columns.types, "u1"), np.frombuffer(columns.kinds, "u1")
    return types, summed_array(columns.ids), kinds, summed_array(columns.subjects), ends


def arrays_of_messages(raw: bytes) -> object:
    rows = [(op.type, op.id, op.kind, op.subject, len(op.data)) for op in FORMER(raw)]
    types, ids, kinds, subjects, lengths = np.array(rows, "i8").T
    return types, ids, kinds, subjects, np.cumsum(lengths)


# ---- the table ------------------------------------------------------------------------------------------------------


def microseconds(read: Callable[[bytes], object], raw: bytes, operations: int) -> float:
    """Median time an operation."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        read(raw)
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times) / operations


def main() -> None:
    print("data   layout    bytes an operation: raw   lz4  zstd   microseconds an operation: Python  numpy")
    for size in DATA_BYTES:
        fixed = frame_bytes(size)
        columns = FrameColumns.FromString(fixed)
        frame = Frame(columns, len(fixed))
        layouts = {
            "fixed": (fixed, read_fixed, arrays_of_fixed),
            "narrow": (narrow_bytes(columns), read_narrow, arrays_of_narrow),
            "messages": (message_bytes(columns, frame), read_messages, arrays_of_messages),
        }
        for name, (raw, *reads) in layouts.items():
            packed = raw, cramjam.lz4.compress(raw), cramjam.zstd.compress(raw, ZSTD_LEVEL)
            sizes = "".join(f"{len(bytes(each)) / frame.count:6.1f}" for each in packed)
            times = "".join(f"{microseconds(read, raw, frame.count):7.3f}" for read in reads)
            print(f"{size:5}  {name:9} {'':19}{sizes} {'':33}{times}")


if __name__ == "__main__":
    main()
