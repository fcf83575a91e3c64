"""Groups: operations into numbered frames."""

from __future__ import annotations

import signal

import pytest

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.operations import Append
from journal.limits import OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, UPDATE, Frame
from journal.wire.frames import decode_frame

UUID = b"u" * 16
ORIGIN = FrameOrigin(UUID, 3, "node-1")
RUN = 20
"""Records whose operations are put together."""


def frames(group: Group, shards: int) -> list[Frame]:
    return [decode_frame(sent.value, UUID, sent.partition, shards) for sent in group.records("j.wal")]


def test_a_sealed_group_is_frames_that_follow_the_last_ones_of_their_shards():
    group = Group(2, 4096)
    group.put(0, ADD, 2, 7, b"a")
    group.put(1, ADD, 1, 7, b"b")
    group.put(0, DELETE, 2, 0, b"")
    group.issued = 9
    last = group.seal(ORIGIN, FrameNumbers((4, 0), 11))
    assert last == FrameNumbers((5, 1), 12)
    first, second = frames(group, 2)
    assert (first.number, first.previous, first.group, first.epoch, first.node, first.last) == (
        5,
        4,
        12,
        3,
        "node-1",
        True,
    )
    assert [(op.type, op.id, op.data) for op in first.operations()] == [(ADD, 2, b"a"), (DELETE, 2, b"")]
    assert (second.number, second.previous, second.issued, second.count) == (1, 0, 9, 1)


def test_a_shard_with_more_than_a_frame_holds_gets_several_and_only_the_last_says_so():
    group = Group(1, 4096)
    for number in range(1, 8):
        group.put(0, ADD, number, 0, b"x" * 1000)
    group.seal(ORIGIN, FrameNumbers((0,), 0))
    cut = frames(group, 1)
    assert [frame.count for frame in cut] == [3, 3, 1]
    assert [frame.last for frame in cut] == [False, False, True]
    assert [(frame.previous, frame.number) for frame in cut] == [(0, 1), (1, 2), (2, 3)]
    assert all(len(sent.value or b"") <= 4096 for sent in group.records("j.wal"))
    assert group.places() == [(0, 1), (0, 2), (0, 3)]


def test_a_settling_operation_keeps_its_transaction_and_what_it_covers():
    group = Group(1, 4096)
    group.put_append(Append(0, COMMIT, tx=7, covers=3))
    group.seal(ORIGIN, FrameNumbers((0,), 0))
    (op,) = frames(group, 1)[0].operations()
    assert (op.type, op.tx, op.covers) == (COMMIT, 7, 3)


def test_a_heartbeat_is_a_frame_without_operations():
    group = Group(2, 4096)
    group.put_heartbeat(1)
    assert not group
    assert list(group.shards()) == [1]
    group.seal(ORIGIN, FrameNumbers((0, 0), 0))
    (frame,) = frames(group, 2)
    assert (frame.count, frame.last, frame.number) == (0, True, 1)


@pytest.mark.parametrize("run", [False, True], ids=["one", "a-run"])
def test_a_signal_amid_an_append_leaves_no_half_operation_and_no_half_of_a_run(run: bool) -> None:
    """Whoever presses Ctrl-C may append on, and what is acknowledged then is in the same frame."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(100):
            group = Group(1, 900_000)
            with pytest.raises(KeyboardInterrupt):
                _append_until_interrupted(group, RUN if run else 1)
            group.put(0, ADD, 1, 1, b"later")
            group.seal(ORIGIN, FrameNumbers((0,), 0))
            (frame,) = frames(group, 1)
            operations = [*frame.operations()]
            assert operations[0].data == b"later" or not run
            if run:  # an update of a record that is deleted in the same frame may be missing: it would have no effect
                deleted = [op.id for op in operations if op.type == DELETE]
                assert {op.id for op in operations if op.type == UPDATE} <= set(deleted)
                assert len(deleted) % RUN == 0
            assert len(operations) == frame.count
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _append_until_interrupted(group: Group, count: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.0004)
    for number in range(2, 10**9, count):
        if count == 1:
            group.put_add(number, 1, b"x" * 10, 10 + OPERATION_OVERHEAD_BYTES)
        else:
            group.put_deleted(0, range(number, number + count), 1, b"holder", 7)
