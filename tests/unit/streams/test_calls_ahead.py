"""Calls of a shell in another process: frames are sent before those before them are applied."""

from __future__ import annotations

import time

import pytest

from journal.errors import (
    DisconnectedError,
    GapError,
)
from streams.reading.calls import BUSY_TICK_S, POSTED_MAX, CalledShell, Channel
from tests.unit.streams.calls_scene import CALLS, LIMIT_S, Sides, beside, connected

pytestmark = pytest.mark.timeout(30)


# ---- frames on their way -----------------------------------------------------------------------------------------


def test_frames_are_sent_before_those_before_them_are_applied_but_only_so_many(sides: Sides) -> None:
    sides.shell.is_busy = True
    for offset in range(POSTED_MAX):
        sides.post(0, offset)
    one_more = beside(sides.post, 1, 9)
    sides.shell.until_called("frames", 1)
    assert not one_more.done()
    sides.shell.let()
    one_more.result(LIMIT_S)
    sides.shell.let(POSTED_MAX)
    sides.settle()
    assert sides.applied() == [*((0, offset) for offset in range(POSTED_MAX)), (1, 9)]


def test_frames_beyond_the_bound_are_sent_when_the_first_have_their_answer() -> None:
    """Each call with frames says how many answers its sender had received before it."""
    with connected() as (bare, answering):
        called = CalledShell(Channel(bare))
        for offset in range(POSTED_MAX):
            called.frames(0, [(offset, 1, b"raw")])
        one_more = beside(called.frames, 1, [(9, 1, b"raw")])
        assert [answering.receive()[:3] for _ in range(POSTED_MAX)] == [("frames", 0, 0)] * POSTED_MAX
        answering.send((None, (1.0, {}), {}))
        assert answering.receive()[:3] == ("frames", 1, 1)
        one_more.result(LIMIT_S)


def test_a_tick_waits_for_no_frames_and_when_they_are_applied_gives_what_came_of_them(sides: Sides) -> None:
    sides.shell.is_busy, sides.shell.tick_s = True, 0.125
    sides.post(0, 1)
    assert sides.called.tick() == BUSY_TICK_S
    sides.post(0, 2)
    sides.shell.until_called("frames", 1)
    assert sides.called.tick() == BUSY_TICK_S
    assert (sides.called.seeks(), sides.called.applied()) == ({}, {})
    sides.shell.marks, sides.shell.sought = {0: 3}, {1: 40}
    sides.shell.let(2)
    while (wanted_s := sides.called.tick()) == BUSY_TICK_S:
        time.sleep(0.001)
    assert wanted_s == 0.125 - BUSY_TICK_S, "the answer may have been there for as long"
    assert (sides.called.seeks(), sides.called.applied()) == ({1: 40}, {0: 3})
    assert [call[0] for call in sides.shell.calls] == ["frames", "tick", "frames", "tick"]


def test_behind_frames_the_shell_has_ticked_and_is_asked_for_the_next_tick_only(sides: Sides) -> None:
    sides.post(0, 1)
    sides.settle()
    assert len(sides.shell.named("tick")) == 1
    sides.called.tick()
    assert len(sides.shell.named("tick")) == 2


@pytest.mark.parametrize("name", [name for name in CALLS if name != "tick"])
def test_what_a_tick_said_is_old_when_something_else_has_been_called_since(sides: Sides, name: str) -> None:
    sides.post(0, 1)
    CALLS[name](sides.called)
    before = len(sides.shell.named("tick"))
    sides.called.tick()
    assert len(sides.shell.named("tick")) == before + 1


@pytest.mark.parametrize("name", [name for name in CALLS if name != "tick"])
def test_every_other_call_comes_behind_the_frames_before_it(sides: Sides, name: str) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    sides.post(0, 2)
    calling = beside(CALLS[name], sides.called)
    sides.shell.until_called("frames", 1)
    assert not calling.done()
    sides.shell.let(2)
    calling.result(LIMIT_S)
    assert [call[0] for call in sides.shell.calls] == ["frames", "tick", "frames", "tick", name]


def test_frames_of_a_shard_that_was_wanted_from_elsewhere_meanwhile_are_not_applied_and_others_are(
    sides: Sides,
) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    sides.shell.until_called("frames", 1)
    sides.post(0, 2)
    sides.shell.sought = {0: 1}
    sides.shell.let()
    sides.post(1, 9)
    sides.shell.let()
    sides.settle()
    assert sides.applied() == [(0, 1), (1, 9)]
    assert sides.called.seeks() == {0: 1}


def test_frames_of_a_shard_are_applied_again_once_the_reader_was_told_from_where(sides: Sides) -> None:
    sides.shell.sought = {0: 1}
    sides.post(0, 1)
    sides.settle()
    sides.post(0, 2)
    sides.settle()
    assert sides.applied() == [(0, 1)]
    assert sides.called.seeks() == {0: 1}
    sides.post(0, 1)
    sides.post(0, 2)
    sides.settle()
    assert sides.applied() == [(0, 1), (0, 1), (0, 2)]


def test_a_shard_that_is_wanted_from_elsewhere_twice_is_read_from_the_last_place(sides: Sides) -> None:
    sides.shell.sought = {0: 1, 1: 5}
    sides.post(0, 1)
    sides.settle()
    sides.shell.sought = {0: 7}
    sides.post(1, 6)
    sides.post(2, 6)
    sides.settle()
    assert sides.called.seeks() == {0: 7, 1: 5}
    assert sides.applied() == [(0, 1), (2, 6)]


def test_a_shard_that_is_wanted_from_elsewhere_is_not_said_to_be_unreadable_where_it_was(sides: Sides) -> None:
    sides.shell.is_busy, sides.shell.sought = True, {0: 1}
    sides.post(0, 1)
    sides.shell.let()
    for shard in (0, 1):
        sides.called.unreadable(shard, GapError("gone", topic="wal", partition=shard, offset=9))
    assert [shard for shard, _ in sides.shell.named("unreadable")] == [1]
    sides.settle()
    assert sides.called.seeks() == {0: 1}
    sides.called.unreadable(0, GapError("gone", topic="wal", partition=0, offset=9))
    assert [shard for shard, _ in sides.shell.named("unreadable")] == [1, 0]


@pytest.mark.parametrize("name", ["assigned", "revoked"])
def test_what_was_wanted_before_a_rebalance_is_not_sought_after_it(sides: Sides, name: str) -> None:
    sides.shell.sought = {0: 1}
    sides.post(0, 1)
    CALLS[name](sides.called)
    assert sides.called.seeks() == {}
    sides.post(0, 2)
    sides.settle()
    assert sides.applied() == [(0, 1), (0, 2)]


def test_what_the_shell_raises_for_frames_the_next_calls_learn(sides: Sides) -> None:
    sides.shell.fails = LookupError("of the shell")
    sides.post(0, 1)
    with pytest.raises(LookupError, match="of the shell"):
        sides.ended.result(LIMIT_S)
    with pytest.raises(DisconnectedError):
        sides.called.stop()
