"""Frames as Arrow arrays: values of WAL records are decoded and checked by numpy, without a loop over operations.

It is written from docs/FORMAT.md and shares nothing with the engine. A record is either a frame or a dead letter: an
operation that must not be there makes its whole record a dead letter, just as it stops a worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
from google.protobuf.message import DecodeError

from journal.errors import FormerFrameError
from journal.limits import VIRTUAL_SHARDS
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, FrameColumns, OperationType

MAGIC = 0x314C4A4B
FORMAT = 1

HEAD = ("epoch", "node", "group", "number", "previous", "last", "issued", "count")
OPERATION = ("type", "id", "kind", "data", "replaceable", "subject", "tx", "covers", "shards")

_NONCE_BYTES = 16
_PIECE_BYTES = 8 << 20
"""Bytes of frames that are decoded at once."""
_COLUMNS: Mapping[str, np.dtype[Any]] = {
    "types": np.dtype("u1"),
    "ids": np.dtype("<i8"),
    "kinds": np.dtype("u1"),
    "lengths": np.dtype("<u4"),
    "subjects": np.dtype("<i8"),
    "replaceable": np.dtype("u1"),
    "txs": np.dtype("<i8"),
    "covers": np.dtype("<u4"),
    "shards": np.dtype("<u4"),
}
"""The columns of a frame and the type of their values."""
_NEEDED = ("types", "ids", "kinds", "lengths")
_NAMED = {number: name for name, number in OperationType.items()}
_NAMES = pa.array([_NAMED.get(number, str(number)) for number in range(256)])  # type: ignore[call-overload]

Numbers = npt.NDArray[Any]


@dataclass(slots=True)
class Decoded:
    """The content of some records' values. `operations` has OPERATION and, first, `row`, which record an operation
    belongs to, and `index`, its place in the frame."""

    heads: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in HEAD})
    """The fields of HEAD of each record, None for a record that is no frame."""
    faults: list[str | None] = field(default_factory=list)
    """Why each record is no frame; None if it is one."""
    rows: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    index: Numbers = field(default_factory=lambda: np.empty(0, np.int32))
    operations: dict[str, pa.Array] = field(default_factory=dict)
    types: Numbers = field(default_factory=lambda: np.empty(0, np.uint8))
    """The type of each operation, as a number."""

    def has_type(self, names: Sequence[str]) -> Numbers:
        """A mask of the operations that have one of these types."""
        wanted = np.zeros(256, np.bool_)
        wanted[[OperationType.Value(name) for name in names]] = True
        return wanted[self.types]


def pieces(batch: pa.RecordBatch, column: str = "value") -> Iterator[pa.RecordBatch]:
    """A batch in parts whose values can be decoded at once."""
    sizes = np.cumsum(pa.compute.fill_null(pa.compute.binary_length(batch[column]), 0).to_numpy())
    begin = 0
    while begin < len(sizes):
        before = sizes[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(sizes, before + _PIECE_BYTES)))
        yield batch.slice(begin, end - begin)
        begin = end


def decoded(values: Sequence[bytes | None], partitions: Numbers, journal: bytes, shards: int) -> Decoded:
    """The content of records' values in these partitions, for a journal of so many shards. Raises FormerFrameError.

    Hot path: one parse for each frame, and a few steps of numpy for all of them.
    """
    found = Decoded()
    frames: list[FrameColumns] = []
    of_rows: list[int] = []
    for row, value in enumerate(values):
        frame, fault = _parsed(value, journal)
        found.faults.append(fault)
        if fault is None:
            frames.append(frame)
            of_rows.append(row)
    columns = {name: _column(frames, name, type_) for name, type_ in _COLUMNS.items()}
    counts = np.array([frame.count for frame in frames], np.int64)
    begins = np.cumsum(counts) - counts
    of_frame = np.repeat(np.arange(len(frames)), counts)
    found.rows = np.array(of_rows, np.int64)[of_frame]
    found.index = (np.arange(len(of_frame)) - begins[of_frame]).astype(np.int32)
    wrong = np.flatnonzero(_wrong(columns, counts[of_frame], partitions[found.rows], shards))
    for at in wrong[::-1]:  # the first one of each frame is told
        row = int(found.rows[at])
        found.faults[row] = (
            f"operation {found.index[at]}: {_told(columns, int(at), counts[of_frame[at]], partitions[row], shards)}"
        )
    of_row: dict[int, FrameColumns] = dict(zip(of_rows, frames, strict=True))
    for row, fault in enumerate(found.faults):
        for name, into in found.heads.items():
            into.append(getattr(of_row[row], name) if fault is None else None)
    found.types = columns["types"]
    found.operations = _operations(columns, b"".join(frame.data for frame in frames))
    if len(wrong):
        good = np.array([fault is None for fault in found.faults])[found.rows]
        kept = pa.array(good)
        found.rows, found.index, found.types = found.rows[good], found.index[good], found.types[good]
        found.operations = {name: values_.filter(kept) for name, values_ in found.operations.items()}
    return found


def head(value: bytes | None) -> FrameColumns | None:
    """The fields of a frame, of any journal; None for other bytes. Raises FormerFrameError."""
    try:
        frame = FrameColumns.FromString(value or b"")
    except DecodeError:
        return None
    if (frame.magic, frame.format) != (MAGIC, FORMAT):
        return None
    _require_columns(frame)
    return frame


def _require_columns(frame: FrameColumns) -> None:
    """Raises FormerFrameError for a frame that has its operations one by one."""
    if frame.former:
        raise FormerFrameError("frame that was written before 0.1.0: make the journal anew")


def _parsed(value: bytes | None, journal: bytes) -> tuple[FrameColumns, str | None]:
    """A frame, and why it is none of the journal, as far as its operations do not say so."""
    if not value:
        return FrameColumns(), "an empty record is not a frame"
    try:
        frame = FrameColumns.FromString(value)
    except DecodeError:
        return FrameColumns(), "not a frame: it does not parse"
    return frame, _head_fault(frame, journal) or _size_fault(frame)


def _head_fault(frame: FrameColumns, journal: bytes) -> str | None:
    if frame.magic != MAGIC:
        return f"not a frame: magic {frame.magic}"
    if frame.format != FORMAT:
        return f"frame format {frame.format} instead of {FORMAT}"
    _require_columns(frame)
    if frame.journal != journal:
        return f"frame of another journal: uuid {frame.journal.hex()}"
    if min(frame.epoch, frame.group, frame.number) < 1 or frame.previous != frame.number - 1:
        return (
            f"frame with impossible numbers: epoch {frame.epoch}, group {frame.group}, number {frame.number} "
            f"after {frame.previous}"
        )
    return f"frame with a negative issued sequence: {frame.issued}" if frame.issued < 0 else None


def _size_fault(frame: FrameColumns) -> str | None:
    """Why the columns are not those of `count` operations."""
    for name, type_ in _COLUMNS.items():
        size = len(getattr(frame, name))
        if size != frame.count * type_.itemsize and (size or name in _NEEDED):
            return f"frame of {frame.count} operations has a column `{name}` of {size} bytes"
    lengths = int(np.frombuffer(frame.lengths, "<u4").sum(dtype=np.int64))
    if lengths != len(frame.data):
        return f"frame says {lengths} bytes of data and has {len(frame.data)}"
    others = frame.replaceable.translate(None, b"\0\1")
    return f"frame has {others[0]} in its column `replaceable`" if others else None


def _column(frames: list[FrameColumns], name: str, type_: np.dtype[Any]) -> Numbers:
    """A column of all frames; one that a frame lacks is zeros."""
    parts = (getattr(frame, name) or bytes(frame.count * type_.itemsize) for frame in frames)
    return np.frombuffer(b"".join(parts), type_)


def _wrong(columns: dict[str, Numbers], counts: Numbers, partitions: Numbers, shards: int) -> Numbers:
    """A mask of the operations that must not be in their frame."""
    types, ids, txs = columns["types"], columns["ids"], columns["txs"]
    home = (ids & (VIRTUAL_SHARDS - 1)) % shards
    of_a_record = (ids < 1) | (txs < 0) | (columns["subjects"] < 0) | (home != partitions)
    marker = (types != MARKER) | (counts != 1) | (columns["lengths"] != _NONCE_BYTES)
    return np.where(
        np.isin(types, (ADD, UPDATE, DELETE)),
        of_a_record,
        np.where(np.isin(types, (PREPARE, COMMIT, ROLLBACK)), txs < 1, marker),
    )


def _told(columns: dict[str, Numbers], at: int, count: int, partition: int, shards: int) -> str:
    """Why an operation must not be in its frame."""
    type_, id_, tx, subject = (int(columns[name][at]) for name in ("types", "ids", "txs", "subjects"))
    if type_ in (ADD, UPDATE, DELETE):
        if id_ < 1:
            return f"id {id_} is not positive"
        if tx < 0:
            return f"tx {tx} is negative"
        if subject < 0:
            return f"subject {subject} is negative"
        return f"id {id_} belongs to shard {(id_ & (VIRTUAL_SHARDS - 1)) % shards} and stands in shard {partition}"
    if type_ in (PREPARE, COMMIT, ROLLBACK):
        return f"tx {tx} is not positive"
    if type_ != MARKER:
        return f"unknown type {type_}"
    if count != 1:
        return f"an epoch marker in a frame of {count} operations"
    return f"an epoch marker without a nonce of {_NONCE_BYTES} bytes"


def _operations(columns: dict[str, Numbers], data: bytes) -> dict[str, pa.Array]:
    lengths = columns["lengths"]
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return {
        "type": _NAMES.take(pa.array(columns["types"])),
        "id": pa.array(columns["ids"]),
        "kind": pa.array(columns["kinds"].astype(np.int32)),
        "data": pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(data)]),
        "replaceable": pa.array(columns["replaceable"] != 0),
        "subject": pa.array(columns["subjects"]),
        "tx": pa.array(columns["txs"]),
        "covers": pa.array(columns["covers"].astype(np.int32)),
        "shards": pa.array(columns["shards"].astype(np.int32)),
    }
