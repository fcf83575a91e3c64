"""An agent of changes that was away: what it is told, and when it begins anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams.agents.agents import Agent
from streams.agents.changes import Changes
from tests.simulation.disk import Disk
from tests.simulation.kafka import SimulatedKafka
from tests.unit.streams.change_scene import LAG_S, OUT, RETENTION_S, ChangeWorld, SeenChanges, after_a_week_end

# ---- time away -----------------------------------------------------------------------------------------------------


def test_what_came_while_an_agent_was_away_for_long_is_told_as_one_change() -> None:
    _, seen = after_a_week_end(keep_copy=True)
    (telling,) = seen.tellings
    assert telling == (True, 3, [(3, None, b"b"), (1, b"a", b"c"), (2, b"a", None), (4, None, b"d")])


def test_the_time_is_told_with_the_mark_that_was_told_last_and_not_with_one_that_was_only_read() -> None:
    seen = SeenChanges()
    world = ChangeWorld(agent=seen)
    world.checkpoint({1: b"a"})
    world.tell_until(lambda: bool(world.given()))
    for data in (b"b", b"c", b"d"):
        world.checkpoint({1: data, 2: data})
    world.away(3 * LAG_S)
    world.agent = Agent("agent", seen, OUT, every_s=1e-6)
    session = world.session(kafka=SimulatedKafka(world.broker, records_per_poll=1))
    session.open()
    seen.tellings.clear()
    session.follow(world.until(lambda: any(rows for _, _, rows in seen.tellings)))
    *only_time, change = seen.tellings
    assert {mark for _, mark, _ in only_time} == {0}
    assert change == (True, 3, [(1, b"a", b"d"), (2, None, b"d")])


def test_without_its_copy_an_agent_is_told_that_old_values_may_be_missing() -> None:
    world, seen = after_a_week_end(keep_copy=False)
    (telling,) = seen.tellings
    assert telling[0] is False
    assert {(record_id, new) for record_id, _, new in telling[2]} >= {(1, b"c"), (3, b"b"), (4, b"d")}
    world.checkpoint({4: b"e"})
    world.tell_until(lambda: len(seen.tellings) == 2)
    assert seen.tellings[-1] == (True, 4, [(4, b"d", b"e")])


def test_an_agent_away_for_longer_than_tombstones_are_kept_begins_anew() -> None:
    seen = SeenChanges()
    world = ChangeWorld(agent=seen)
    world.checkpoint({1: b"a", 2: b"a"})
    world.tell_until(lambda: bool(world.given()))
    world.checkpoint({1: None})
    world.away(2 * RETENTION_S, compact=True)
    world.away(2 * RETENTION_S, compact=True)
    states: list[bytes | None] = []

    def anew(changes: Changes) -> Iterator[tuple[bytes, str]]:
        states.append(changes.state.get(b"told"))
        yield from seen(changes)

    world.agent = Agent("agent", anew, OUT)
    world.tell_until(lambda: len(world.given()) == 2)
    assert states == [None]
    assert seen.tellings[-1] == (True, 1, [(2, None, b"a")])


@pytest.mark.parametrize("keep_copy", [True, False])
def test_an_agent_away_for_too_long_begins_anew_on_a_machine_whose_clock_was_set_back(keep_copy: bool) -> None:
    seen = SeenChanges()
    world = ChangeWorld(agent=seen)
    world.checkpoint({1: b"a", 2: b"a"})
    world.tell_until(lambda: bool(world.given()))
    world.clock_behind_s = 10 * RETENTION_S
    world.checkpoint({1: None})
    world.away(2 * RETENTION_S, compact=True)
    world.away(2 * RETENTION_S, compact=True)
    world.checkpoint({3: b"a"})
    if not keep_copy:
        world.disk = Disk()
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == (True, 2, [(2, None, b"a"), (3, None, b"a")])


def test_an_agent_that_was_told_nothing_for_weeks_and_is_restarted_goes_on() -> None:
    seen = SeenChanges()
    world = ChangeWorld(agent=seen)
    world.checkpoint({1: b"a"})
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    for _ in range(40):
        world.away(RETENTION_S / 10)
        weeks_end = world.timeline.now() + 10.0
        session.follow(lambda: world.timeline.now() > weeks_end)  # noqa: B023
    session.close()
    world.checkpoint({2: b"a"})
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == (True, 1, [(2, None, b"a")])
