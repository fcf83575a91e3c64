"""Checks whether a WAL record's value is a frame of this journal and shard: docs/FORMAT.md, "Frames"."""

from __future__ import annotations

import struct
from itertools import accumulate

from google.protobuf.message import DecodeError

from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, FrameColumns, Operation
from journal.verify.state import shard_of

MAGIC = int.from_bytes(b"KJL1", "little")
FORMAT = 1
NONCE_BYTES = 16
_COLUMNS = {
    "types": "B",
    "ids": "q",
    "kinds": "B",
    "lengths": "I",
    "subjects": "q",
    "replaceable": "B",
    "txs": "q",
    "covers": "I",
    "shards": "I",
}
"""The columns, with the form of their numbers."""
_NEVER_ABSENT = ("types", "ids", "kinds", "lengths")


class NotAFrame(ValueError):
    """Raised by `parse_frame` and caught by the fold. It says why these bytes stop the shard."""


def parse_frame(
    value: bytes | None, journal_uuid: bytes, shard: int, shards: int
) -> tuple[FrameColumns, list[Operation]]:
    """The frame in a WAL record's value, and its operations. Raises NotAFrame if it is none."""
    if not value:
        raise NotAFrame("an empty record is not a frame")
    try:
        frame = FrameColumns.FromString(value)
    except DecodeError as error:
        raise NotAFrame(f"not a frame: {error}") from error
    _require_header(frame, journal_uuid)
    operations = _operations(frame)
    for index, operation in enumerate(operations):
        reason = _impossible(operation, len(operations), shard, shards)
        if reason:
            raise NotAFrame(f"operation {index}: {reason}")
    return frame, operations


def _require_header(frame: FrameColumns, journal_uuid: bytes) -> None:
    if frame.magic != MAGIC:
        raise NotAFrame(f"not a frame: magic {frame.magic:#x} instead of {MAGIC:#x}")
    if frame.format != FORMAT:
        raise NotAFrame(f"frame format {frame.format}: this release reads format {FORMAT}; a newer release may read it")
    if frame.former:
        raise NotAFrame("frame that was written before 0.1.0: make the journal anew")
    if frame.journal != journal_uuid:
        raise NotAFrame(f"frame of another journal: uuid {frame.journal.hex()} instead of {journal_uuid.hex()}")
    if frame.epoch < 1 or frame.group < 1 or frame.number < 1 or frame.previous != frame.number - 1:
        numbers = f"epoch {frame.epoch}, group {frame.group}, number {frame.number} after {frame.previous}"
        raise NotAFrame(f"frame with impossible numbers: {numbers}")
    if frame.issued < 0:
        raise NotAFrame(f"frame with a negative issued sequence: {frame.issued}")


def _operations(frame: FrameColumns) -> list[Operation]:
    """The operations in the columns. Every size is compared before a number is read."""
    count = frame.count
    for name, form in _COLUMNS.items():
        size = len(getattr(frame, name))
        if size != count * struct.calcsize(f"<{form}") and (size or name in _NEVER_ABSENT):
            raise NotAFrame(f"frame of {count} operations has a column `{name}` of {size} bytes")
    columns = {name: _numbers(form, getattr(frame, name), count) for name, form in _COLUMNS.items()}
    ends = list(accumulate(columns.pop("lengths"), initial=0))
    if ends[-1] != len(frame.data):
        raise NotAFrame(f"frame says {ends[-1]} bytes of data and has {len(frame.data)}")
    for value in columns["replaceable"]:
        if value > 1:
            raise NotAFrame(f"frame has {value} in its column `replaceable`")
    types, ids, kinds, subjects, replaceable, txs, covers, shards = columns.values()
    return [
        Operation(
            type=types[index],  # type: ignore[arg-type]  # `_impossible` checks it
            id=ids[index],
            kind=kinds[index],
            data=frame.data[ends[index] : ends[index + 1]],
            subject=subjects[index],
            replaceable=replaceable[index] == 1,
            tx=txs[index],
            covers=covers[index],
            shards=shards[index],
        )
        for index in range(count)
    ]


def _numbers(form: str, column: bytes, count: int) -> tuple[int, ...]:
    """The numbers of a column; zeros if it is absent."""
    return struct.unpack(f"<{count}{form}", column) if column else (0,) * count


def _impossible(operation: Operation, count: int, shard: int, shards: int) -> str:
    kind = int(operation.type)
    if kind in (ADD, UPDATE, DELETE):
        if operation.id < 1:
            return f"id {operation.id} is not positive"
        for name, number in (("tx", operation.tx), ("subject", operation.subject)):
            if number < 0:
                return f"{name} {number} is negative"
        home = shard_of(operation.id, shards)
        if home != shard:
            return f"id {operation.id} belongs to shard {home} and stands in shard {shard}"
    elif kind in (PREPARE, COMMIT, ROLLBACK):
        if operation.tx < 1:
            return f"tx {operation.tx} is not positive"
    elif kind != MARKER:
        return f"unknown type {kind}"
    elif count != 1:
        return f"an epoch marker in a frame of {count} operations"
    elif len(operation.data) != NONCE_BYTES:
        return "an epoch marker without a nonce of 16 bytes"
    return ""
