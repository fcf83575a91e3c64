"""An agent of changes whose table has lost its tail begins anew."""

from __future__ import annotations

import json

import pytest

from journal.errors import (
    CountError,
    RowError,
)
from journal.topics.names import memory_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key, record_key
from tests.simulation.disk import Disk
from tests.support.fault_at import FaultAt
from tests.unit.streams.change_scene import (
    CHECKPOINTS,
    JOURNAL,
    LAG_S,
    OPENING,
    ChangeWorld,
    NoLeaderEpochs,
    SeenChanges,
    run_through,
)

# ---- a table that has lost its tail ----------------------------------------------------------------------------------

GROWN_AGAIN = (True, 4, [(1, None, b"a"), (4, None, b"b"), (5, None, b"b"), (6, None, b"b")])


def grow_again(world: ChangeWorld) -> None:
    """The last mark is lost; the worker folds the same frames again, in other checkpoints, and one more behind them."""
    world.lose_last_mark()
    world.checkpoint({3: None, 4: b"b", 5: b"b"})
    world.checkpoint({6: b"b"})


def told_up_to_mark_two() -> tuple[ChangeWorld, SeenChanges]:
    seen = SeenChanges()
    world = ChangeWorld(agent=seen)
    for rows in ({1: b"a"}, {3: b"a"}, {2: b"a"}):
        world.checkpoint(rows)
    return world, seen


def test_an_agent_of_a_table_that_loses_its_tail_and_grows_again_begins_anew() -> None:
    world, seen = told_up_to_mark_two()
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    grow_again(world)
    session.follow(world.until(lambda: len(world.given()) == 2))
    session.close()
    assert seen.tellings[-1] == GROWN_AGAIN


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_agent_that_comes_back_to_a_table_that_lost_its_tail_and_grew_again_begins_anew(elsewhere: bool) -> None:
    world, seen = told_up_to_mark_two()
    world.tell_until(lambda: bool(world.given()))
    grow_again(world)
    if elsewhere:
        world.disk = Disk()
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == GROWN_AGAIN


def test_an_agent_that_stands_beyond_the_end_of_its_table_begins_anew() -> None:
    world, seen = told_up_to_mark_two()
    world.tell_until(lambda: bool(world.given()))
    world.lose_last_mark()
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == (True, 1, [(1, None, b"a"), (3, None, b"a")])


def test_an_agent_begins_anew_at_a_mark_that_does_not_name_the_one_that_it_was_told_up_to() -> None:
    world, seen = told_up_to_mark_two()
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    strange = Mark(shard=0, offset=5, epoch=1, records=3, previous=1)
    world.broker.write(world.table, 0, [(mark_key(0), strange.SerializeToString())])
    session.follow(world.until(lambda: len(world.given()) == 2))
    assert seen.tellings[-1] == (True, 5, [(1, None, b"a"), (2, None, b"a"), (3, None, b"a")])


def test_where_marks_were_compacted_away_the_counts_tell_that_a_table_is_not_what_an_agent_was_told() -> None:
    world, seen = told_up_to_mark_two()
    session = world.session(kafka=NoLeaderEpochs(world.broker))
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    session.close()
    grow_again(world)
    world.away(3 * LAG_S, compact=True)
    world.checkpoint({1: b"c"})
    session = world.session(kafka=NoLeaderEpochs(world.broker))
    session.open()
    session.follow(world.until(lambda: len(world.given()) == 2))
    assert seen.tellings[-1] == (True, 5, [(1, None, b"c"), (4, None, b"b"), (5, None, b"b"), (6, None, b"b")])


def test_an_agent_is_not_told_of_a_table_that_has_lost_a_row() -> None:
    world, seen = told_up_to_mark_two()
    world.broker.write(world.table, 0, [(record_key(1), None)])
    world.checkpoint({})
    with pytest.raises(CountError, match=r"has 2 records.* says 3 records"):
        world.tell_until(lambda: bool(world.given()))
    assert seen.tellings == []


def test_a_memory_of_another_journal_is_refused() -> None:
    world = ChangeWorld()
    world.checkpoint(CHECKPOINTS[0])
    world.broker.write(
        memory_topic(JOURNAL, "agent"), 0, [(b"p", json.dumps({"offset": 1, "table": "00", "stood_ms": 1}).encode())]
    )
    with pytest.raises(RowError, match="another journal"):
        world.session().open()
    world.broker.write(memory_topic(JOURNAL, "agent"), 0, [(b"?", b"")])
    with pytest.raises(RowError, match="no agent's memory"):
        world.session().open()


def test_a_repeated_end_of_a_transaction_makes_the_session_take_over_anew() -> None:
    faults = FaultAt(uncounted=[OPENING])
    run_through(ChangeWorld(faults), None)
