"""Checks whether a WAL record's value is a frame of this journal and shard: docs/FORMAT.md, "Frames"."""

from __future__ import annotations

from itertools import accumulate

from google.protobuf.message import DecodeError

from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, Frame, Operation
from journal.verify.state import shard_of

MAGIC = int.from_bytes(b"KJL1", "little")
FORMAT = 1
NONCE_BYTES = 16
_TYPES = (ADD, UPDATE, DELETE, PREPARE, COMMIT, ROLLBACK, MARKER)


class NotAFrame(ValueError):
    """Raised by `parse_frame` and caught by the fold. It says why these bytes stop the shard."""


def parse_frame(value: bytes | None, journal_uuid: bytes, shard: int, shards: int) -> tuple[Frame, list[Operation]]:
    """The frame in a WAL record's value, and its operations. Raises NotAFrame if it is none."""
    try:
        frame = Frame.FromString(value or b"")
    except DecodeError as error:
        raise NotAFrame("it does not parse") from error
    if frame.magic != MAGIC:
        raise NotAFrame(f"magic {frame.magic:#x}")
    if frame.format != FORMAT:
        raise NotAFrame(f"format {frame.format}")
    if frame.journal != journal_uuid:
        raise NotAFrame(f"of journal {frame.journal.hex()}")
    if frame.epoch < 1 or frame.group < 1 or frame.number < 1 or frame.issued < 0:
        raise NotAFrame(f"epoch {frame.epoch}, group {frame.group}, number {frame.number}, issued {frame.issued}")
    if frame.previous != frame.number - 1:
        raise NotAFrame(f"number {frame.number} after {frame.previous}")
    operations = _operations(frame)
    for index, operation in enumerate(operations):
        reason = _impossible(operation, shard, shards)
        if operation.type == MARKER and frame.count != 1:
            reason = "a marker that is not alone"
        if reason:
            raise NotAFrame(f"operation {index}: {reason}")
    return frame, operations


def _operations(frame: Frame) -> list[Operation]:
    """The operations in the columns. A column that may be absent is one of zeros then."""
    count = frame.count
    needed = frame.types, frame.ids, frame.kinds, frame.lengths
    others = frame.subjects, frame.replaceable, frame.txs, frame.covers, frame.shards
    if any(len(column) != count for column in needed) or any(len(column) not in (0, count) for column in others):
        raise NotAFrame(f"{count} operations, and columns of {[len(each) for each in (*needed, *others)]}")
    if sum(frame.lengths) != len(frame.data):
        raise NotAFrame(f"{len(frame.data)} bytes of data, and lengths of {sum(frame.lengths)}")
    unknown = set(frame.types) - set(_TYPES)
    if unknown:
        raise NotAFrame(f"types {sorted(unknown)}")
    data, ends = frame.data, list(accumulate(frame.lengths))
    optional = (list(column) or [0] * count for column in others)
    columns = zip(frame.types, frame.ids, frame.kinds, [0, *ends], ends, *optional, strict=False)
    return [
        Operation(
            type=type_,
            id=record_id,
            kind=kind,
            data=data[begin:end],
            subject=subject,
            replaceable=bool(replaceable),
            tx=tx,
            covers=covers,
            shards=shards,
        )
        for type_, record_id, kind, begin, end, subject, replaceable, tx, covers, shards in columns
    ]


def _impossible(operation: Operation, shard: int, shards: int) -> str:
    kind = operation.type
    if kind in (ADD, UPDATE, DELETE):
        if operation.id < 1 or operation.tx < 0 or operation.subject < 0:
            return f"id {operation.id}, tx {operation.tx}, subject {operation.subject}"
        if shard_of(operation.id, shards) != shard:
            return f"id {operation.id} is not of this shard"
    elif kind in (PREPARE, COMMIT, ROLLBACK):
        if operation.tx < 1:
            return f"tx {operation.tx}"
    elif len(operation.data) != NONCE_BYTES:
        return f"a marker with a nonce of {len(operation.data)} bytes"
    return ""
