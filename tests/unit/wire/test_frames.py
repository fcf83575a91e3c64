"""Frames: the bytes that are a frame of this journal and shard, and those that are not."""

from __future__ import annotations

import pytest

from journal.errors import FrameError
from journal.limits import FRAME_OVERHEAD_BYTES, ID_MAX, NODE_BYTES_MAX, OPERATION_OVERHEAD_BYTES, SUBJECT_MAX
from journal.v1.journal_pb2 import COMMIT, PREPARE, ROLLBACK, Frame, Operation
from journal.wire.frames import decode_frame
from tests.support.build import JOURNAL, add, delete, frame, marker, prepare, update


def decoded(value: Frame, shard: int = 0, shards: int = 1) -> Frame:
    return decode_frame(value.SerializeToString(), JOURNAL, shard, shards)


def changed(**fields: object) -> Frame:
    value = frame(2, add(1))
    for name, content in fields.items():
        setattr(value, name, content)
    return value


def test_a_frame_reads_back_as_it_was_written() -> None:
    written = frame(3, add(1, b"data", kind=255), update(1, subject=SUBJECT_MAX), delete(ID_MAX), prepare(7), issued=9)
    assert decoded(written) == written


def test_every_frame_begins_with_the_same_five_bytes() -> None:
    assert frame(1, marker()).SerializeToString()[:5] == b"\x0d\x4b\x4a\x4c\x31"


def test_a_frame_may_have_no_operations() -> None:
    assert not decoded(frame(2)).operations


@pytest.mark.parametrize("raw", [None, b"", b"\x00", b"{}", b"\x0d\x4b\x4a\x4c\x31"])
def test_bytes_that_are_not_laid_out_as_a_frame_are_no_frame(raw: bytes | None) -> None:
    with pytest.raises(FrameError):
        decode_frame(raw, JOURNAL, 0, 1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (changed(magic=1), "magic"),
        (changed(format=2), "format 2"),
        (changed(journal=bytes(16)), "another journal"),
        (changed(count=2), "says 2 operations and has 1"),
        (changed(epoch=0), "impossible numbers"),
        (changed(group=0), "impossible numbers"),
        (changed(number=0, previous=0), "impossible numbers"),
        (changed(previous=2), "impossible numbers"),
        (changed(previous=-1), "impossible numbers"),
        (changed(issued=-1), "issued"),
    ],
)
def test_bytes_with_an_impossible_header_are_no_frame(value: Frame, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        decoded(value)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (add(0), "id 0 is not positive"),
        (add(-1), "id -1 is not positive"),
        (add(1, kind=256), "kind 256"),
        (update(1, kind=256), "kind 256"),
        (delete(1, tx=-1), "tx -1"),
        (Operation(type=PREPARE), "tx 0 is not positive"),
        (Operation(type=COMMIT, tx=-1), "tx -1 is not positive"),
        (Operation(type=ROLLBACK), "tx 0 is not positive"),
        (Operation(id=1), "unknown type 0"),
        (Operation(type=8, id=1), "unknown type 8"),  # type: ignore[arg-type]
        (marker(b"short"), "nonce"),
    ],
)
def test_a_frame_with_an_impossible_operation_is_refused_and_the_operation_named(
    operation: Operation, reason: str
) -> None:
    with pytest.raises(FrameError, match=f"operation 0: .*{reason}"):
        decoded(frame(2, operation))


def test_a_frame_with_a_negative_subject_is_refused() -> None:
    with pytest.raises(FrameError):
        decoded(frame(2, update(1, subject=-1, replaceable=True)))


def test_a_marker_is_alone_in_its_frame() -> None:
    with pytest.raises(FrameError, match="marker in a frame of 2"):
        decoded(frame(2, marker(), add(1)))


def test_a_frame_with_a_record_of_another_shard_is_refused() -> None:
    assert decoded(frame(2, add(3)), shard=1, shards=2)
    with pytest.raises(FrameError, match="belongs to shard 1 and stands in shard 0"):
        decoded(frame(2, add(3)), shard=0, shards=2)


def test_frames_and_operations_fit_the_overheads_that_limits_allow_for() -> None:
    header = frame(2**63 - 1, epoch=2**63 - 1, node="n" * NODE_BYTES_MAX, issued=2**63 - 1)
    assert header.ByteSize() < FRAME_OVERHEAD_BYTES
    largest = update(ID_MAX, bytes(100_000), kind=255, subject=SUBJECT_MAX, replaceable=True, tx=ID_MAX)
    with_it = frame(2, largest).ByteSize() - frame(2).ByteSize()
    assert with_it - len(largest.data) < OPERATION_OVERHEAD_BYTES
