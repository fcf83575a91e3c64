"""Decodes, checks and sorts a frame of the WAL (`journal.fold.sorted_frame`). Pure.

Sorting needs no table, so another process than the one that folds can do it. The fold then only looks ids up and keeps
the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError

from journal.fold.plain_frames import plain_runs
from journal.fold.sorted_frame import SortedFrame, SortedRun, empty_run
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, Frame, FrameHead, Operation
from journal.wire.frames import decode_frame, header_fault, nonce_of
from journal.wire.rows import position_in_frame


def sort_frame(raw: bytes, offset: int, journal: bytes, shard: int, shards: int) -> SortedFrame:
    """The frame at a WAL offset, decoded and checked as `decode_frame` does. Raises FrameError."""
    plain = _plain_frame(raw, offset, journal, shard, shards)
    if plain is not None:
        return plain
    frame = decode_frame(raw, journal, shard, shards)
    nonce = nonce_of(frame)
    return _with_head(frame, len(raw), nonce, [] if nonce else _runs(frame.operations, position_in_frame(offset)))


def _with_head(head: Frame | FrameHead, bytes_in_wal: int, nonce: bytes, runs: list[SortedRun]) -> SortedFrame:
    return SortedFrame(
        head.epoch,
        head.node,
        head.count,
        head.issued,
        head.group,
        head.number,
        head.previous,
        head.last,
        nonce,
        bytes_in_wal,
        runs,
    )


def _runs(operations: Iterable[Operation], position: Callable[[int], bytes]) -> list[SortedRun]:
    """Sort operations into runs. Hot path: one pass."""
    runs: list[SortedRun] = []
    added, added_rows, updated, updated_rows, deleted, others = run = empty_run()
    seen: set[int] = set()
    for index, op in enumerate(operations):
        kind = op.type
        if op.tx:
            others.append((index, op.SerializeToString()))
            if kind == COMMIT:
                runs.append(SortedRun(*run))
                added, added_rows, updated, updated_rows, deleted, others = run = empty_run()
                seen.clear()
            continue
        record_id = op.id
        if record_id in seen:
            runs.append(SortedRun(*run))
            added, added_rows, updated, updated_rows, deleted, others = run = empty_run()
            seen.clear()
        seen.add(record_id)
        if kind == ADD:
            added.append(record_id)
            added_rows.append(op.SerializeToString() + position(index))
        elif kind == DELETE:
            deleted.append(record_id)
        elif op.replaceable:
            others.append((index, op.SerializeToString()))
        else:
            updated.append(record_id)
            updated_rows.append(op.SerializeToString() + position(index))
    runs.append(SortedRun(*run))
    return runs


def _plain_frame(raw: bytes, offset: int, journal: bytes, shard: int, shards: int) -> SortedFrame | None:
    """A frame in which all operations have the layout that the writer uses most (`journal.wire.operations`). None for
    any other frame and for a faulty one: the caller then parses the frame's message."""
    try:
        head = FrameHead.FromString(raw)
    except DecodeError:
        return None
    head.DiscardUnknownFields()
    before = head.SerializeToString()
    if not raw.startswith(before) or header_fault(head, journal):
        return None
    found = plain_runs(raw, len(before), position_in_frame(offset), shard, shards)
    if found is None or found[1] != head.count:
        return None
    return _with_head(head, len(raw), b"", found[0])
