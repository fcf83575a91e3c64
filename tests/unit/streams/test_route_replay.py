"""A route's replay: what it sent for a range is sent once more, and exactly once, whatever crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from journal.errors import (
    ConfigError,
    FrameError,
    GapError,
    InvalidOperationError,
    OperatingError,
    RouteStopError,
    TopicError,
)
from journal.topics.names import replay_id, wal_topic
from journal.v1.journal_pb2 import Operation, SkipRequest, Trim
from streams.routes.replay_range import ReplayRange, range_of_ids, range_of_time
from tests.simulation.faults import Fault, Faults, SimulatedCrash
from tests.simulation.partition import MARKER
from tests.support.build import add, commit, delete, frame, marker, prepare, rollback, update, wal
from tests.support.route_replay import ReplayWorld
from tests.support.routes import DEAD, FIRST_MS, NAME, OUT, TOPIC, chunk, large, message, one_route

GROUPS = [
    [marker()],
    [message(1, b"one"), update(1, b"u"), add(90, b"no message")],
    [message(2, b"short"), delete(2)],
    [message(3, b"tx", tx=9), prepare(9, 1)],
    [message(4, b"four"), message(40, b"other", "b.c")],
    [commit(9, 1), delete(1)],
    [message(5, b"never", tx=10), prepare(10, 1)],
    [rollback(10, 1), message(6, b"six")],
    [message(7, b"unborn", tx=11), delete(7, tx=11), commit(11, 2)],
    [delete(6)],
]
SENT = [b"one", b"short", b"four", b"tx", b"six"]
ROUTE = one_route(address="a")
OTHER = one_route("other", topic=DEAD, address="#")


class Switched(Faults):
    """One fault, at a step that is counted only while they are on."""

    def __init__(self, fault: Fault = Fault.NONE, at: int = -1, late_by_s: float = 1.0) -> None:
        self.on = False
        self.step = 0
        self._fault, self._at, self._late_by_s = fault, at, late_by_s

    def at(self, request: str, node: str) -> Fault:
        self.step += self.on
        return self._fault if self.on and self.step == self._at else Fault.NONE

    def late_by_s(self) -> float:
        return self._late_by_s


def world(*groups: Iterable[Operation], routes: Any = (ROUTE,), **more: Any) -> ReplayWorld:
    return ReplayWorld(wal([marker()], *groups), *routes, **more)


@pytest.mark.parametrize(("bytes_at_once", "transactions"), [(1000, 2), (1, 4)])
def test_a_transaction_takes_so_many_records_or_bytes(bytes_at_once: int, transactions: int) -> None:
    """A thousand large records in one would never get through in the time of a request."""
    scene = world(*[[message(number, b"body")] for number in range(1, 5)])
    log = scene.broker.topics[OUT].logs[0]
    before = sum(entry.state == MARKER for entry in log.entries)
    scene.replay(bytes_at_once=bytes_at_once).run()
    assert scene.replayed() == [b"body"] * 4
    assert sum(entry.state == MARKER for entry in log.entries) - before == transactions


def second(number: int) -> int:
    return FIRST_MS + number * 1000


def test_what_took_effect_is_sent_once_more_as_the_worker_sent_it() -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE, OTHER)
    scene.replay().run()
    assert scene.replayed() == SENT
    assert scene.replayed(DEAD) == [], "another route's"
    assert (scene.done().messages, scene.done().sent) == (6, 5)


def test_a_second_run_sends_nothing_and_each_further_time_is_sent_on_purpose() -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    for _ in range(3):
        scene.replay().run()
    assert scene.replayed() == SENT
    for _ in range(2):
        scene.replay(again=1).run()
    assert scene.replayed() == SENT * 2


def test_what_is_added_later_comes_with_the_next_run() -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    scene.replay(range_of_time(FIRST_MS, second(10_000))).run()
    number = len(GROUPS) + 1
    late = frame(number, message(8, b"late"))
    scene.frames.append((2 * (number - 1), 1, late.SerializeToString()))
    log = scene.broker.log(wal_topic(NAME), 0)
    assert log is not None
    log.append(second(number), None, late.SerializeToString())
    scene.replay(range_of_time(FIRST_MS, second(10_000))).run()
    assert scene.replayed() == SENT, "the tables do not have it yet: no worker has applied it"
    scene.run(100)
    assert scene.sent()[-1] == b"late"
    scene.replay(range_of_time(FIRST_MS, second(10_000))).run()
    assert scene.sent()[-2:] == [b"late", b"late"]


@pytest.mark.parametrize(
    ("range_", "sent"),
    [
        (range_of_time(second(1), second(3)), [b"one", b"short"]),
        (range_of_time(second(3), second(5)), [b"four"]),
        (range_of_time(second(5), second(6)), [b"tx"]),
        (range_of_time(second(100), second(200)), []),
        (range_of_ids(3, 4), [b"four", b"tx"]),
        (range_of_ids(5, 5), []),
    ],
)
def test_a_range_is_of_when_messages_took_effect_or_of_ids(range_: ReplayRange, sent: list[bytes]) -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    scene.replay(range_).run()
    assert scene.replayed() == sent


@pytest.mark.parametrize("ends", [(5, 5), (6, 5)])
def test_an_empty_range_is_an_error(ends: tuple[int, int]) -> None:
    with pytest.raises(InvalidOperationError, match="is empty"):
        range_of_time(*ends)
    with pytest.raises(InvalidOperationError, match="is empty"):
        range_of_ids(7, ends[0])


def test_an_unknown_route_is_an_error_that_names_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match="no route x: its routes are r, other"):
        ReplayWorld(wal(*GROUPS), ROUTE, OTHER).replay(route="x")


def test_a_message_that_an_earlier_route_keeps_from_it_is_not_sent() -> None:
    first = one_route("first", topic=DEAD, address="b.#", stop=True)
    scene = ReplayWorld(wal(*GROUPS), first, one_route(address="#"))
    scene.replay().run()
    assert (scene.replayed(), scene.replayed(DEAD)) == (SENT, [])


# ---- crashes ---------------------------------------------------------------------------------------------------------


def run_again_until_done(scene: ReplayWorld) -> int:
    """Runs until one ends by itself; how many there were."""
    for runs in range(1, 10):
        try:
            scene.replay().run()
        except (SimulatedCrash, OperatingError):
            scene.timeline.wait(1.0, lambda: False)
        else:
            return runs
    raise AssertionError("nine runs were not enough")


@pytest.mark.parametrize(
    ("fault", "late_by_s"),
    [
        *((fault, 1.0) for fault in Fault if fault is not Fault.NONE),
        *((Fault.REPEATED, late_by_s) for late_by_s in (0.004, 0.008, 0.012, 0.016)),
    ],
)
def test_one_fault_at_any_step_sends_nothing_twice_and_leaves_nothing_out(fault: Fault, late_by_s: float) -> None:
    counting = Switched()
    scene = ReplayWorld(wal(*GROUPS), ROUTE, faults=counting)
    counting.on = True
    scene.replay().run()
    assert counting.step > 10
    runs = []
    for step in range(1, counting.step + 1):
        faults = Switched(fault, step, late_by_s)
        scene = ReplayWorld(wal(*GROUPS), ROUTE, faults=faults)
        faults.on = True
        runs.append(run_again_until_done(scene))
        scene.timeline.wait(5.0, lambda: False)  # what was late has come
        assert scene.replayed() == SENT, f"{fault} at {step}"
        scene.replay().run()
        assert scene.replayed() == SENT, f"{fault} at {step}, run again"
    if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
        assert set(runs) == {2}


def test_two_runs_at_once_fence_each_other_and_send_everything_once() -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)

    def meanwhile(step: str, done: int, total: int) -> None:
        if not done:
            scene.replay().run()

    first = scene.replay(progress=meanwhile)
    with pytest.raises(OperatingError, match="another run of this replay has taken over"):
        first.run()
    assert scene.replayed() == SENT


# ---- policies --------------------------------------------------------------------------------------------------------

KEYED = {"topic": OUT, "key": "header:k"}


def keyed(on_error: str, **more: Any) -> ReplayWorld:
    return world(
        [message(1, b"1", headers={"k": "x"})],
        [message(2, b"2", headers={"k": "y"}), message(3, b"bad"), message(4, b"4", headers={"k": "z"})],
        [message(5, b"5", headers={"k": "x"})],
        routes=[{"name": "r", "targets": [KEYED], "on_error": on_error}],
        **more,
    )


def change(scene: ReplayWorld, *routes: Any, **more: Any) -> None:
    scene.routing = type(scene.routing).model_validate({"routes": routes, **more})


def test_policy_skip_counts_and_goes_on() -> None:
    scene = keyed("skip")
    scene.replay().run()
    assert scene.replayed() == [b"1", b"2", b"4", b"5"]
    assert scene.done().refused == Counter({"no-key": 1})


def test_policy_dead_letter_sends_a_refused_message_to_its_topic_in_the_same_transaction() -> None:
    scene = keyed("dead-letter", dead_letter_topic=DEAD)
    scene.replay().run()
    assert (scene.replayed(), scene.replayed(DEAD)) == ([b"1", b"2", b"4", b"5"], [b"bad"])
    assert (scene.done().sent, scene.done().dead_letters) == (4, 1)


def test_policy_fail_stops_a_replay_with_all_before_the_frame_sent_and_a_mended_route_goes_on_there() -> None:
    scene = keyed("skip")
    change(scene, {"name": "r", "targets": [KEYED], "on_error": "fail"})
    for _ in range(2):
        with pytest.raises(RouteStopError, match=r"stops in shard 0 before WAL offset 4, message 3.*no-key") as error:
            scene.replay().run()
        assert "routes resume" not in str(error.value), "no shard is stopped"
    assert scene.replayed() == [b"1"]
    change(scene, {"name": "r", "targets": [{"topic": OUT, "key": ["header:k", "none"]}]})
    scene.replay().run()
    assert scene.replayed() == [b"1", b"2", b"bad", b"4", b"5"]


def test_what_an_operator_had_the_shard_pass_over_is_passed_over_again() -> None:
    scene = keyed("skip")
    change(scene, {"name": "r", "targets": [KEYED], "on_error": "fail"})
    scene.passes.add(4)
    scene.replay().run()
    assert scene.replayed() == [b"1", b"2", b"4", b"5"]


def test_a_dry_run_counts_and_sends_nothing_and_disturbs_no_other() -> None:
    scene = keyed("skip")
    run = scene.replay()
    scene.replay(dry_run=True).run()
    assert scene.replayed() == []
    assert (scene.done().sent, scene.done().refused, scene.done().messages) == (4, Counter({"no-key": 1}), 5)
    run.run()
    scene.replay(dry_run=True).run()
    assert (scene.done().sent, scene.done().began_at) == (0, 7)


def test_a_dry_run_stops_where_the_replay_would() -> None:
    scene = keyed("skip")
    change(scene, {"name": "r", "targets": [KEYED], "on_error": "fail"})
    with pytest.raises(RouteStopError, match="would be sent"):
        scene.replay(dry_run=True).run()
    assert (scene.done().sent, scene.replayed()) == (1, [])


def test_a_topic_that_is_gone_is_an_error_before_anything_is_sent() -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    scene.broker.delete_topic(OUT)
    with pytest.raises(TopicError, match="topic out is not there"):
        scene.replay().run()


def test_topics_that_a_template_makes_are_looked_up_as_they_come() -> None:
    topics = dict.fromkeys((OUT, DEAD, "of-x"), TOPIC) | {"of-y": {"max.message.bytes": "3000"}}
    scene = world(
        [message(1, b"1", "x")],
        [message(2, b"2", "y")],
        [message(3, b"3", "x")],
        routes=[one_route(topic="of-{address}")],
        topics=topics,
    )
    scene.replay().run()
    assert (scene.sent("of-x"), scene.sent("of-y")) == ([b"1", b"3"] * 2, [b"2"] * 2)
    assert scene.sized[-1].batch_bytes_max < 3000, "a producer of its own for the small topic"


# ---- large messages --------------------------------------------------------------------------------------------------


def test_a_large_body_is_read_from_the_frames_that_added_its_parts() -> None:
    scene = world(
        [chunk(11, b"abc"), chunk(12, b"de")],
        [large(1, [11, 12], 5)],
        [chunk(13, b"fg", tx=7), large(2, [13], 2, tx=7)],
        [commit(7, 2), delete(2), delete(13), delete(1), delete(11), delete(12)],
    )
    scene.replay().run()
    assert scene.replayed() == [b"abcde", b"fg"]


# ---- what is gone, and what is damaged -------------------------------------------------------------------------------


def trimmed(start: int, *, archived: bool = False) -> ReplayWorld:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    log = scene.broker.log(wal_topic(NAME), 0)
    assert log is not None
    log.trim(start)
    scene.trims[0] = Trim(offset=start, operator="ann@host", timestamp=FIRST_MS, archived=archived)
    return scene


def test_a_range_that_the_wal_has_no_more_is_an_error_that_names_what_is_gone() -> None:
    scene = trimmed(8, archived=True)
    with pytest.raises(GapError) as error:
        scene.replay(range_of_time(second(2), second(100))).run()
    for part in ("WAL before offset 8 is gone", "ann@host", "the archive has it", "2020-09-13T12:26:44", f"{NAME}.wal"):
        assert part in str(error.value)
    assert scene.replayed() == []


def test_a_range_behind_what_is_gone_is_replayed() -> None:
    scene = trimmed(6)
    scene.replay(range_of_time(second(4), second(5))).run()
    assert scene.replayed() == [b"four"]
    scene = trimmed(6)
    scene.replay(range_of_time(second(4), second(100))).run()
    assert scene.replayed() == [b"four", b"tx", b"six"], "the transaction began behind it"


def test_a_transaction_of_the_range_that_began_in_what_is_gone_is_an_error() -> None:
    scene = trimmed(8)
    with pytest.raises(GapError, match="transaction 9, committed at offset 10, began there"):
        scene.replay(range_of_time(second(5), second(100))).run()
    scene.replay(range_of_time(second(6), second(100))).run()
    assert scene.replayed() == [b"six"]


def test_ids_that_may_have_been_in_what_is_gone_are_an_error_that_says_which_are_not() -> None:
    first, later = 5 << 10, 9 << 10
    groups = [(number, operations) for number, operations in enumerate(([message(first)], [message(later)]), 2)]
    frames = [(0, 1, frame(1, marker()))]
    frames += [
        (2 * (number - 1), number, frame(number, *operations, issued=4 * number - 3)) for number, operations in groups
    ]
    scene = ReplayWorld(frames, ROUTE)
    log = scene.broker.log(wal_topic(NAME), 0)
    assert log is not None
    log.trim(2)
    with pytest.raises(GapError, match=f"ids below {6 << 10} may have been there: begin at {6 << 10}"):
        scene.replay(range_of_ids(first, later)).run()
    scene.replay(range_of_ids(6 << 10, later)).run()
    assert len(scene.replayed()) == 1


def test_frames_that_an_operator_had_skipped_are_left_out_and_others_that_are_none_are_damage() -> None:
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    log = scene.broker.log(wal_topic(NAME), 0)
    assert log is not None
    log.entries[2].value = b"garbage"
    with pytest.raises(FrameError, match=r"j\.wal\[0\].*2"):
        scene.replay().run()
    scene = ReplayWorld(wal(*GROUPS), ROUTE)
    scene.skips[0, 8] = SkipRequest()
    scene.replay().run()
    assert scene.replayed() == [b"one", b"short", b"tx", b"six"]


def test_a_replays_name_is_its_own_for_each_range_route_and_time() -> None:
    names = {
        replay_id("j", route, range_.digest(again))
        for route in ("a", "b")
        for range_ in (range_of_time(1, 2), range_of_time(1, 3), range_of_ids(1, 2))
        for again in (0, 1)
    }
    assert len(names) == 12
    assert range_of_time(1, 2).digest(0) == range_of_time(1, 2).digest(0)
