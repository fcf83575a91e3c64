"""Calls of a shell in another process: what each call takes and gives."""

from __future__ import annotations

import pytest

from journal.errors import (
    CorruptionError,
    DisconnectedError,
    FrameError,
    GapError,
)
from streams.reading.calls import CallsEnded
from tests.support.build import add, delete, marker, wal
from tests.unit.streams.calls_scene import CALLS, LIMIT_S, Sides

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
def test_each_answer_says_what_is_applied(sides: Sides, name: str) -> None:
    called, shell = sides.called, sides.shell
    assert called.applied() == {}
    shell.marks = {0: 12, 6: 2**50}
    CALLS[name](called)
    assert called.applied() == {0: 12, 6: 2**50}
    shell.marks = {}
    assert called.applied() == {0: 12, 6: 2**50}
    called.tick()
    assert called.applied() == {}


def test_the_answer_to_frames_says_what_is_applied(sides: Sides) -> None:
    sides.shell.marks = {0: 12}
    sides.post(0, 11)
    sides.settle()
    assert sides.called.applied() == {0: 12}
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
