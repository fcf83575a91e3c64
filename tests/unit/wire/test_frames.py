"""Frames and what a reader finds in them. What is no frame is in tests/golden/refused."""

from __future__ import annotations

import pytest

from journal.errors import FormerFrameError, FrameError
from journal.limits import FRAME_OVERHEAD_BYTES, ID_MAX, NODE_BYTES_MAX, OPERATION_OVERHEAD_BYTES, SUBJECT_MAX
from journal.v1.journal_pb2 import ADD, UPDATE
from journal.wire.frames import Frame, decode_frame
from journal.wire.operations import IN_TRANSACTION
from tests.support.build import JOURNAL, NONCE, BuiltFrame, add, delete, frame, marker, prepare, update


def decoded(value: BuiltFrame, shard: int = 0, shards: int = 1) -> Frame:
    return decode_frame(value.SerializeToString(), JOURNAL, shard, shards)


def test_a_frame_reads_back_as_it_was_written() -> None:
    operations = [add(1, b"data", kind=255), update(1, subject=SUBJECT_MAX), delete(ID_MAX), prepare(7, 3)]
    written = frame(3, *operations, issued=9, node="node-2", epoch=4, last=False)
    found = decoded(written)
    assert list(found.operations()) == operations
    header = "epoch", "node", "group", "number", "previous", "last", "issued", "count"
    assert [getattr(found, name) for name in header] == [4, "node-2", 3, 3, 2, False, 9, 4]
    assert found.nonce == b""


def test_only_a_frame_with_a_marker_has_a_nonce() -> None:
    assert decoded(frame(1, marker())).nonce == NONCE
    assert decoded(frame(2)).nonce == b""


def test_runs_are_neighbours_of_one_type_and_those_of_transactions_stand_apart() -> None:
    operations = [add(1), add(2), update(1), add(3), add(4, tx=7), add(5, tx=8), prepare(7, 1)]
    assert [*decoded(frame(2, *operations)).runs()] == [
        (ADD, 0, 2), (UPDATE, 2, 3), (ADD, 3, 4), (IN_TRANSACTION, 4, 7),
    ]  # fmt: skip
    assert [*decoded(frame(2, add(1), add(2))).runs()] == [(ADD, 0, 2)]
    assert [*decoded(frame(2)).runs()] == []


def test_every_frame_begins_with_the_same_five_bytes() -> None:
    assert frame(1, marker()).SerializeToString()[:5] == b"\x0d\x4b\x4a\x4c\x31"


def test_a_frame_may_have_no_operations() -> None:
    assert not [*decoded(frame(2)).operations()]


def test_a_record_without_a_value_is_no_frame() -> None:
    with pytest.raises(FrameError):
        decode_frame(None, JOURNAL, 0, 1)


def test_a_frame_of_a_release_before_0_1_0_has_an_error_of_its_own() -> None:
    former = frame(2, add(1))
    former.message.former = b"an operation"
    with pytest.raises(FormerFrameError, match=r"written before 0\.1\.0: make the journal anew"):
        decoded(former)


def test_a_frame_with_a_record_of_another_shard_is_refused() -> None:
    assert decoded(frame(2, add(3)), shard=1, shards=2)
    with pytest.raises(FrameError, match="belongs to shard 1 and stands in shard 0"):
        decoded(frame(2, add(3)), shard=0, shards=2)


def test_frames_and_operations_fit_the_overheads_that_limits_allow_for() -> None:
    header = frame(2**63 - 1, epoch=2**63 - 1, node="n" * NODE_BYTES_MAX, issued=2**63 - 1)
    columns = 10 * 6  # tags and lengths
    assert header.message.ByteSize() + columns < FRAME_OVERHEAD_BYTES
    largest = update(ID_MAX, bytes(100_000), kind=255, subject=SUBJECT_MAX, replaceable=True, tx=ID_MAX)
    with_it = frame(2, largest).message.ByteSize() - frame(2).message.ByteSize()
    assert with_it - len(largest.data) - columns < OPERATION_OVERHEAD_BYTES
