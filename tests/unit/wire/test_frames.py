"""Frames: the bytes that are a frame of this journal and shard, and those that are not."""

from __future__ import annotations

import pytest

from journal.errors import FrameError
from journal.limits import FRAME_OVERHEAD_BYTES, ID_MAX, NODE_BYTES_MAX, OPERATION_OVERHEAD_BYTES, SUBJECT_MAX
from journal.v1.journal_pb2 import ADD, COMMIT, PREPARE, ROLLBACK, UPDATE, Operation
from journal.wire.frames import Frame, decode_frame
from journal.wire.operations import IN_TRANSACTION
from tests.support.build import JOURNAL, NONCE, BuiltFrame, add, delete, frame, marker, prepare, update


def decoded(value: BuiltFrame, shard: int = 0, shards: int = 1) -> Frame:
    return decode_frame(value.SerializeToString(), JOURNAL, shard, shards)


def changed(**fields: object) -> BuiltFrame:
    value = frame(2, add(1))
    for name, content in fields.items():
        setattr(value.message, name, content)
    return value


def test_a_frame_reads_back_as_it_was_written() -> None:
    operations = [add(1, b"data", kind=255), update(1, subject=SUBJECT_MAX), delete(ID_MAX), prepare(7, 3)]
    written = frame(3, *operations, issued=9, node="node-2", epoch=4, last=False)
    found = decoded(written)
    assert list(found.operations()) == operations
    header = "epoch", "node", "group", "number", "previous", "last", "issued", "count", "bytes_in_wal"
    assert [getattr(found, name) for name in header] == [4, "node-2", 3, 3, 2, False, 9, 4, written.message.ByteSize()]
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
        (changed(count=2), "frame of 2 operations has a column `types` of 1 bytes"),
        (changed(types=b""), "frame of 1 operations has a column `types` of 0 bytes"),
        (changed(ids=bytes(9)), "column `ids` of 9 bytes"),
        (changed(kinds=b"ab"), "column `kinds` of 2 bytes"),
        (changed(lengths=bytes(3)), "column `lengths` of 3 bytes"),
        (changed(subjects=bytes(16)), "column `subjects` of 16 bytes"),
        (changed(replaceable=b"ab"), "column `replaceable` of 2 bytes"),
        (changed(txs=bytes(4)), "column `txs` of 4 bytes"),
        (changed(covers=bytes(8)), "column `covers` of 8 bytes"),
        (changed(shards=bytes(5)), "column `shards` of 5 bytes"),
        (changed(data=b"x"), "says 0 bytes of data and has 1"),
        (changed(lengths=b"\xff\xff\xff\xff"), "says 4294967295 bytes of data and has 0"),
        (changed(former=b"x"), "written before 0.1.0: make the journal anew"),
        (changed(epoch=0), "impossible numbers"),
        (changed(group=0), "impossible numbers"),
        (changed(number=0, previous=0), "impossible numbers"),
        (changed(previous=2), "impossible numbers"),
        (changed(previous=-1), "impossible numbers"),
        (changed(issued=-1), "issued"),
    ],
)
def test_bytes_with_an_impossible_header_are_no_frame(value: BuiltFrame, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        decoded(value)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (add(0), "id 0 is not positive"),
        (add(-1), "id -1 is not positive"),
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
    columns = 10 * 6  # tags and lengths
    assert header.message.ByteSize() + columns < FRAME_OVERHEAD_BYTES
    largest = update(ID_MAX, bytes(100_000), kind=255, subject=SUBJECT_MAX, replaceable=True, tx=ID_MAX)
    with_it = frame(2, largest).message.ByteSize() - frame(2).message.ByteSize()
    assert with_it - len(largest.data) - columns < OPERATION_OVERHEAD_BYTES
