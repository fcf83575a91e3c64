"""Frames, the values of WAL records: decoding and checks. docs/FORMAT.md draws them.

Hot path: a frame's columns are checked as a whole, here, so that the fold need not check an operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.errors import FormerFrameError, FrameError
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, FrameColumns, Operation
from journal.wire.ids import SHARD_MASK, shard_of
from journal.wire.operations import IN_TRANSACTION, eight_bytes_each, four_bytes_each

MAGIC = 0x314C4A4B
FORMAT = 1

_OF_RECORDS = bytes((ADD, UPDATE, DELETE))
_OF_TRANSACTIONS = bytes((PREPARE, COMMIT, ROLLBACK))
_FALSE_AND_TRUE = bytes((0, 1))
_EQUAL = re.compile(rb"(.)\1*", re.DOTALL)


class FrameRun(NamedTuple):
    """Neighbouring operations of one rank, from index `begin` to before `end`. The rank is their type, or
    IN_TRANSACTION."""

    rank: int
    begin: int
    end: int


class Frame:
    """A frame of the WAL, checked. Each column has `count` values; a column of zeros may be empty."""

    __slots__ = (
        "count",
        "covers",
        "data",
        "epoch",
        "group",
        "ids",
        "issued",
        "kinds",
        "last",
        "node",
        "number",
        "previous",
        "replaceable",
        "shards",
        "subjects",
        "txs",
        "types",
    )

    def __init__(self, columns: FrameColumns) -> None:
        """Raises struct.error if a column of numbers has another size than a multiple of a number's."""
        self.epoch = columns.epoch
        self.node = columns.node
        self.group = columns.group
        self.number = columns.number
        self.previous = columns.previous
        self.last = columns.last
        self.issued = columns.issued
        self.count = columns.count
        self.types = columns.types
        self.ids = eight_bytes_each(columns.ids)
        self.kinds = columns.kinds
        self.subjects = eight_bytes_each(columns.subjects)
        self.replaceable = columns.replaceable
        self.txs = eight_bytes_each(columns.txs)
        self.covers = four_bytes_each(columns.covers)
        self.shards = four_bytes_each(columns.shards)
        self.data: Sequence[bytes] = [*map(BytesIO(columns.data).read, four_bytes_each(columns.lengths))]

    @property
    def nonce(self) -> bytes:
        """The nonce of a frame that holds an epoch marker; empty for any other frame."""
        return self.data[0] if self.types[:1] == _MARKER else b""

    def runs(self) -> Iterator[FrameRun]:
        """The operations in their order, as runs."""
        ranks = self.types
        if self.txs:
            ranks = bytes(IN_TRANSACTION if tx else type_ for type_, tx in zip(ranks, self.txs, strict=True))
        for match in _EQUAL.finditer(ranks):
            yield FrameRun(match[0][0], *match.span())

    def operation(self, index: int) -> Operation:
        return Operation(
            type=self.types[index],  # type: ignore[arg-type]  # a number that was checked
            id=self.ids[index],
            kind=self.kinds[index],
            data=self.data[index],
            replaceable=bool(self.replaceable and self.replaceable[index]),
            subject=self.subjects[index] if self.subjects else 0,
            tx=self.txs[index] if self.txs else 0,
            covers=self.covers[index] if self.covers else 0,
            shards=self.shards[index] if self.shards else 0,
        )

    def operations(self) -> Iterator[Operation]:
        """All operations, one by one, for readers that need not be fast."""
        return map(self.operation, range(self.count))


_MARKER = bytes((MARKER,))


def decode_frame(raw: bytes | None, journal: bytes, shard: int, shards: int) -> Frame:
    """The frame in a WAL record's value. It checks every field that can be checked without the journal's state.

    Raises FrameError for anything that is not a frame of `journal`, and FormerFrameError for one of a release before
    0.1.0. The error has no place; the caller adds it.
    """
    if not raw:
        raise FrameError("an empty record is not a frame")
    try:
        columns = FrameColumns.FromString(raw)
    except DecodeError as error:
        raise FrameError(f"not a frame: {error}") from None
    if columns.magic == MAGIC and columns.format == FORMAT and columns.former:
        raise FormerFrameError("frame that was written before 0.1.0: make the journal anew")
    reason = _header_fault(columns, journal) or _columns_fault(columns)
    if reason:
        raise FrameError(reason)
    frame = Frame(columns)
    reason = _operations_fault(frame, shard, shards)
    if reason:
        raise FrameError(reason)
    return frame


def _header_fault(frame: FrameColumns, journal: bytes) -> str | None:
    """Why the fields before the operations cannot be those of a frame of `journal`; None if they can. It does not check
    the number of operations."""
    if frame.magic != MAGIC:
        return f"not a frame: magic {frame.magic:#x} instead of {MAGIC:#x}"
    if frame.format != FORMAT:
        return f"frame format {frame.format}: this release reads format {FORMAT}; a newer release may read it"
    if frame.journal != journal:
        return f"frame of another journal: uuid {frame.journal.hex()} instead of {journal.hex()}"
    if frame.epoch < 1 or frame.group < 1 or frame.number < 1 or frame.previous != frame.number - 1:
        return (
            f"frame with impossible numbers: epoch {frame.epoch}, group {frame.group}, "
            f"number {frame.number} after {frame.previous}"
        )
    if frame.issued < 0:
        return f"frame with a negative issued sequence: {frame.issued}"
    return None


def _columns_fault(frame: FrameColumns) -> str | None:
    """Why the columns are not those of `count` operations: nothing is made of them before this is known."""
    count = frame.count
    for name, values, size, optional in (
        ("types", frame.types, 1, False),
        ("ids", frame.ids, 8, False),
        ("kinds", frame.kinds, 1, False),
        ("lengths", frame.lengths, 4, False),
        ("subjects", frame.subjects, 8, True),
        ("replaceable", frame.replaceable, 1, True),
        ("txs", frame.txs, 8, True),
        ("covers", frame.covers, 4, True),
        ("shards", frame.shards, 4, True),
    ):
        if len(values) != count * size and not (optional and not values):
            return f"frame of {count} operations has a column `{name}` of {len(values)} bytes"
    lengths = sum(four_bytes_each(frame.lengths))
    if lengths != len(frame.data):
        return f"frame says {lengths} bytes of data and has {len(frame.data)}"
    others = frame.replaceable.translate(None, _FALSE_AND_TRUE)
    return f"frame has {others[0]} in its column `replaceable`" if others else None


def _operations_fault(frame: Frame, shard: int, shards: int) -> str | None:
    types = frame.types
    others = types.translate(None, _OF_RECORDS)
    if not others and types and min(frame.ids) > 0:
        virtual_shards = set(map(SHARD_MASK.__and__, frame.ids))
        if (
            all(each % shards == shard for each in virtual_shards)
            and (not frame.subjects or min(frame.subjects) >= 0)
            and (not frame.txs or min(frame.txs) >= 0)
        ):
            return None
    for index, type_ in enumerate(types):
        if type_ in _OF_RECORDS:
            fault = _record_fault(frame, index, shard, shards)
        elif type_ in _OF_TRANSACTIONS:
            tx = frame.txs[index] if frame.txs else 0
            fault = None if tx > 0 else f"tx {tx} is not positive"
        elif type_ == MARKER:
            fault = _marker_fault(frame, index)
        else:
            fault = f"unknown type {type_}"
        if fault:
            return f"operation {index}: {fault}"
    return None


def _record_fault(frame: Frame, index: int, shard: int, shards: int) -> str | None:
    record_id = frame.ids[index]
    if record_id <= 0:
        return f"id {record_id} is not positive"
    if frame.txs and frame.txs[index] < 0:
        return f"tx {frame.txs[index]} is negative"
    if frame.subjects and frame.subjects[index] < 0:
        return f"subject {frame.subjects[index]} is negative"
    if shard_of(record_id, shards) != shard:
        return f"id {record_id} belongs to shard {shard_of(record_id, shards)} and stands in shard {shard}"
    return None


def _marker_fault(frame: Frame, index: int) -> str | None:
    if frame.count != 1:
        return f"an epoch marker in a frame of {frame.count} operations"
    return None if len(frame.data[index]) == 16 else "an epoch marker without a nonce of 16 bytes"
