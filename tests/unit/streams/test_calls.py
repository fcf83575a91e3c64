"""Calls of a shell in another process: what each call takes and gives."""

from __future__ import annotations

import pytest
from journal.fold.sorted_frame import SortedFrame

from journal.errors import (
    CorruptionError,
    DisconnectedError,
    FrameError,
    GapError,
)
from streams.reading.calls import CallsEnded
from tests.support.build import NONCE, add, commit, delete, frame, marker, replace, update, wal
from tests.unit.streams.calls_scene import CALLS, LIMIT_S, Sides, comparable, numbers, sorted_of

pytestmark = pytest.mark.timeout(30)


# ---- what each call takes and gives ------------------------------------------------------------------------------


def test_shards_that_are_assigned_arrive_and_so_do_the_offsets_to_read_them_from(sides: Sides) -> None:
    sides.shell.offsets = {0: 7, 5: 2**62}
    assert sides.called.assigned(frozenset({0, 3, 5})) == {0: 7, 5: 2**62}
    ((shards,),) = sides.shell.named("assigned")
    assert sorted(shards) == [0, 3, 5]


def test_no_shards_may_be_assigned_and_none_may_be_ready(sides: Sides) -> None:
    assert sides.called.assigned([]) == {}
    assert sides.shell.calls == [("assigned", [])]


def test_shards_that_are_revoked_arrive(sides: Sides) -> None:
    sides.called.revoked(frozenset({4}))
    assert sides.shell.calls == [("revoked", [4])]


def test_records_arrive_as_they_lie_in_the_wal(sides: Sides) -> None:
    values = [each.SerializeToString() for _, _, each in wal([marker()], [add(1, b"a"), delete(1)])]
    assert sides.received(*values, b"", b"garbage") == [*values, b"", b"garbage"]


def test_sorted_records_arrive_with_all_that_was_found_of_them(sides: Sides) -> None:
    given = sorted_of(frame(2, add(1, b"one"), add(2), update(3, b"u"), delete(4), add(2**40)), 8)
    (received,) = sides.received(given)
    assert isinstance(received, SortedFrame)
    assert comparable(received) == comparable(given)
    assert (received.number, received.previous, received.operations, received.nonce) == (2, 1, 5, b"")
    ((added, added_rows, updated, _, deleted, others),) = received.runs
    assert [numbers(ids) for ids in (added, updated, deleted)] == [[1, 2, 2**40], [3], [4]]
    assert added_rows == given.runs[0].added_rows
    assert others == []


def test_a_sorted_frame_of_several_runs_with_transactions_and_replaceable_updates_arrives_whole(sides: Sides) -> None:
    operations = [add(1), update(1, b"u"), replace(1, b"r"), add(2, tx=9), commit(9, 1), delete(1), delete(3)]
    given = sorted_of(frame(2, *operations, epoch=7, node="näme", group=11, last=False, issued=5), 6)
    assert len(given.runs) > 2
    (received,) = sides.received(given)
    assert comparable(received) == comparable(given)


def test_an_epochs_sorted_marker_arrives_with_its_nonce(sides: Sides) -> None:
    given = sorted_of(frame(1, marker(NONCE), epoch=3))
    (received,) = sides.received(given)
    assert isinstance(received, SortedFrame)
    assert received == given
    assert (received.epoch, received.nonce, received.runs) == (3, NONCE, [])


def test_sorted_records_and_others_come_in_their_order(sides: Sides) -> None:
    first, second, third = (each for _, _, each in wal([marker()], [add(1)], [delete(1)]))
    given = (sorted_of(first), second.SerializeToString(), b"garbage", sorted_of(third, 4))
    received = sides.received(*given)
    assert [comparable(each) for each in received] == [comparable(each) for each in given]


def test_a_call_with_no_records_arrives(sides: Sides) -> None:
    assert sides.received() == []


@pytest.mark.parametrize("kind", [CorruptionError, GapError, FrameError])
def test_why_a_shard_cannot_be_read_keeps_its_kind_and_its_place(sides: Sides, kind: type[CorruptionError]) -> None:
    error = kind("the batch is damaged: ü", topic="wal", partition=2, offset=2**40)
    sides.called.unreadable(2, error)
    ((shard, received),) = sides.shell.named("unreadable")
    assert (shard, type(received)) == (2, kind)
    assert str(received) == str(error) == f"wal[2]@{2**40}: the batch is damaged: ü"
    assert (received.reason, received.topic, received.partition, received.offset) == (error.reason, "wal", 2, 2**40)


def test_a_tick_says_when_the_next_one_is_wanted_and_what_to_seek_which_is_told_once(sides: Sides) -> None:
    sides.shell.tick_s, sides.shell.sought = 0.125, {1: 40, 2: 0}
    assert sides.called.seeks() == {}
    assert sides.called.tick() == 0.125
    assert sides.called.seeks() == {1: 40, 2: 0}
    assert sides.called.seeks() == {}
    sides.shell.tick_s = 0.0
    assert sides.called.tick() == 0.0
    assert sides.called.seeks() == {}
    assert sides.shell.calls == [("tick",), ("tick",)]


@pytest.mark.parametrize("name", CALLS)
def test_each_answer_says_what_is_applied_and_which_shards_are_wanted_unsorted(sides: Sides, name: str) -> None:
    called, shell = sides.called, sides.shell
    assert (called.applied(), set(called.unsorted())) == ({}, set())
    shell.marks, shell.wanted = {0: 12, 6: 2**50}, {1, 4}
    CALLS[name](called)
    assert (called.applied(), set(called.unsorted())) == ({0: 12, 6: 2**50}, {1, 4})
    shell.marks, shell.wanted = {}, set()
    assert (called.applied(), set(called.unsorted())) == ({0: 12, 6: 2**50}, {1, 4})
    called.tick()
    assert (called.applied(), set(called.unsorted())) == ({}, set())


def test_the_answer_to_frames_says_what_is_applied_and_which_shards_are_wanted_unsorted(sides: Sides) -> None:
    sides.shell.marks, sides.shell.wanted = {0: 12}, {1}
    sides.post(0, 11)
    sides.settle()
    assert (sides.called.applied(), set(sides.called.unsorted())) == ({0: 12}, {1})
    assert len(sides.shell.named("tick")) == 1


def test_a_caller_stops_the_shell_and_cannot_abandon_it(sides: Sides) -> None:
    sides.called.stop()
    sides.called.abandon()
    sides.called.ended(None)
    with pytest.raises(CallsEnded):
        sides.ended.result(LIMIT_S)
    assert sides.shell.calls == [("stop",)]


def test_calls_are_made_in_their_order(sides: Sides) -> None:
    for _ in range(3):
        for call in CALLS.values():
            call(sides.called)
    assert [call[0] for call in sides.shell.calls] == list(CALLS) * 3


def test_what_the_shell_raises_ends_the_answers_and_its_call_gets_none(sides: Sides) -> None:
    sides.shell.fails = LookupError("of the shell")
    with pytest.raises(DisconnectedError):
        sides.called.tick()
    with pytest.raises(LookupError, match="of the shell"):
        sides.ended.result(LIMIT_S)
