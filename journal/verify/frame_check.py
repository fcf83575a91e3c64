"""Checks whether a WAL record's value is a frame of this journal and shard: docs/FORMAT.md, "Frames"."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from journal.limits import KIND_MAX
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, PREPARE, ROLLBACK, UPDATE, Frame, Operation
from journal.verify.state import shard_of

MAGIC = int.from_bytes(b"KJL1", "little")
FORMAT = 1
NONCE_BYTES = 16


class NotAFrame(ValueError):
    """Raised by `parse_frame` and caught by the fold. It says why these bytes stop the shard."""


def parse_frame(value: bytes | None, journal_uuid: bytes, shard: int, shards: int) -> Frame:
    """The frame in a WAL record's value. Raises NotAFrame if it is none."""
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
    if frame.count != len(frame.operations):
        raise NotAFrame(f"{len(frame.operations)} operations, counted {frame.count}")
    if frame.epoch < 1 or frame.group < 1 or frame.number < 1 or frame.issued < 0:
        raise NotAFrame(f"epoch {frame.epoch}, group {frame.group}, number {frame.number}, issued {frame.issued}")
    if frame.previous != frame.number - 1:
        raise NotAFrame(f"number {frame.number} after {frame.previous}")
    for index, operation in enumerate(frame.operations):
        reason = _impossible(operation, shard, shards)
        if operation.type == MARKER and frame.count != 1:
            reason = "a marker that is not alone"
        if reason:
            raise NotAFrame(f"operation {index}: {reason}")
    return frame


def _impossible(operation: Operation, shard: int, shards: int) -> str:
    kind = operation.type
    if kind in (ADD, UPDATE, DELETE):
        if operation.id < 1 or operation.tx < 0 or operation.subject < 0 or operation.kind > KIND_MAX:
            return f"id {operation.id}, tx {operation.tx}, subject {operation.subject}, kind {operation.kind}"
        if shard_of(operation.id, shards) != shard:
            return f"id {operation.id} is not of this shard"
    elif kind in (PREPARE, COMMIT, ROLLBACK):
        if operation.tx < 1:
            return f"tx {operation.tx}"
    elif kind == MARKER:
        if len(operation.data) != NONCE_BYTES:
            return f"a marker with a nonce of {len(operation.data)} bytes"
    else:
        return f"type {kind}"
    return ""
