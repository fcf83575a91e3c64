"""Frames, the values of WAL records: decoding and checks. docs/FORMAT.md draws them.

Hot path: each operation is checked once, here, so that the fold need not check it.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from journal.errors import FrameError
from journal.limits import KIND_MAX
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, Frame, FrameHead, Operation
from journal.wire.ids import SHARD_MASK, shard_of

MAGIC = 0x314C4A4B
FORMAT = 1

_RECORD_OPERATIONS = (ADD, UPDATE, DELETE)


def decode_frame(raw: bytes | None, journal: bytes, shard: int, shards: int) -> Frame:
    """The frame in a WAL record's value. It checks every field that can be checked without the journal's state.

    Raises FrameError for anything that is not a frame of `journal`. The error has no place; the caller adds it.
    """
    if not raw:
        raise FrameError("an empty record is not a frame")
    try:
        frame = Frame.FromString(raw)
    except DecodeError as error:
        raise FrameError(f"not a frame: {error}") from None
    reason = header_fault(frame, journal) or _count_fault(frame) or _operations_fault(frame, shard, shards)
    if reason:
        raise FrameError(reason)
    return frame


def nonce_of(frame: Frame) -> bytes:
    """The nonce of a frame that holds an epoch marker; empty for any other frame."""
    return frame.operations[0].data if frame.count == 1 and frame.operations[0].type == MARKER else b""


def header_fault(frame: Frame | FrameHead, journal: bytes) -> str | None:
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


def _count_fault(frame: Frame) -> str | None:
    if frame.count != len(frame.operations):
        return f"frame says {frame.count} operations and has {len(frame.operations)}"
    return None


def _operations_fault(frame: Frame, shard: int, shards: int) -> str | None:
    for index, op in enumerate(frame.operations):
        kind = op.type
        if kind in _RECORD_OPERATIONS:
            record_id = op.id
            in_shard = record_id > 0 and (record_id & SHARD_MASK) % shards == shard
            if in_shard and op.kind <= KIND_MAX and op.tx >= 0 and op.subject >= 0:
                continue
            return f"operation {index}: {_record_fault(op, shard, shards)}"
        fault = _SETTLING_FAULTS[kind](op, frame) if kind in _SETTLING_FAULTS else f"unknown type {kind}"
        if fault:
            return f"operation {index}: {fault}"
    return None


def _record_fault(op: Operation, shard: int, shards: int) -> str:
    if op.id <= 0:
        return f"id {op.id} is not positive"
    if op.kind > KIND_MAX:
        return f"kind {op.kind} is beyond {KIND_MAX}"
    if op.tx < 0:
        return f"tx {op.tx} is negative"
    if op.subject < 0:
        return f"subject {op.subject} is negative"
    return f"id {op.id} belongs to shard {shard_of(op.id, shards)} and stands in shard {shard}"


def _transaction_fault(op: Operation, frame: Frame) -> str | None:
    return None if op.tx > 0 else f"tx {op.tx} is not positive"


def _marker_fault(op: Operation, frame: Frame) -> str | None:
    if frame.count != 1:
        return f"an epoch marker in a frame of {frame.count} operations"
    return None if len(op.data) == 16 else "an epoch marker without a nonce of 16 bytes"


_SETTLING_FAULTS: dict[int, Callable[[Operation, Frame], str | None]] = {
    PREPARE: _transaction_fault,
    COMMIT: _transaction_fault,
    ROLLBACK: _transaction_fault,
    MARKER: _marker_fault,
}
