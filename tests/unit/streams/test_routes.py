"""Routes in the worker: each message that took effect is sent once, in the transaction of its checkpoint."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from journal.errors import CorruptionError, RouteStopError, TopicError
from journal.routing.selector.tokens import SELECTOR_CHARACTERS_MAX
from journal.topics.names import control_topic, table_topic
from journal.v1.store_pb2 import MESSAGE
from streams.routes.targets import FAULTS_KEPT
from streams.routes.worker_routes import REFRESH_EVERY_S
from streams.worker.shard_standing import ROUTE_RETRY_S, ShardState
from tests.simulation.faults import Fault, Faults
from tests.support.build import add, commit, delete, frame, marker, prepare, rollback, update, wal
from tests.support.routes import DEAD, NAME, OUT, TOPIC, RoutesWorld, chunk, large, message, one_route

GROUPS = [
    [marker()],
    [message(1, b"one"), update(1, b"u"), add(90, b"no message")],
    [message(2, b"short"), delete(2)],
    [message(3, b"tx", tx=9), prepare(9, 1)],
    [message(4, b"four"), message(40, b"other", "b.c")],
    [commit(9, 1), delete(1)],
    [message(5, b"never", tx=10), prepare(10, 1)],
    [rollback(10, 1), message(6, b"six")],
    [delete(6)],
]
SENT = [b"one", b"short", b"four", b"tx", b"six"]
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
ROUTE = one_route(address="a")
OTHER = one_route("other", address="z.#")


class Endless(Faults):
    """No transaction ends while it is on."""

    is_on = False

    def at(self, request: str, node: str) -> Fault:
        return Fault.LOSE_REQUEST if self.is_on and request == "end_transaction" else Fault.NONE


class FaultAt(Faults):
    def __init__(self, fault: Fault = Fault.NONE, at: int = -1) -> None:
        self.step = 0
        self._fault, self._at = fault, at

    def at(self, request: str, node: str) -> Fault:
        self.step += 1
        return self._fault if self.step == self._at else Fault.NONE


def world(*groups: Any, routes: Any = (ROUTE, OTHER), **more: Any) -> RoutesWorld:
    return RoutesWorld(wal([marker()], *groups), *routes, **more)


def stopped(scene: RoutesWorld, at_once: int = 100) -> tuple[Any, RouteStopError]:
    """The worker that a route has stopped, and why."""
    worker = scene.worker()
    worker.recover()
    scene.drive(worker, at_once)
    assert worker.state is ShardState.STOPPED
    assert isinstance(worker.stopped_by, RouteStopError)
    return worker, worker.stopped_by


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_each_message_that_took_effect_is_sent_once_and_in_wal_order(at_once: int) -> None:
    scene = RoutesWorld(wal(*GROUPS), ROUTE, OTHER)
    scene.run(at_once)
    assert scene.sent() == SENT


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_step_changes_nothing_of_what_is_sent(fault: Fault) -> None:
    counting = FaultAt()
    RoutesWorld(wal(*GROUPS), ROUTE, faults=counting).run(2)
    for step in range(1, counting.step + 1):
        scene = RoutesWorld(wal(*GROUPS), ROUTE, faults=FaultAt(fault, step))
        scene.run(2)
        assert scene.sent() == SENT, f"{fault} at {step}"


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_message_added_and_deleted_inside_one_checkpoint_is_sent_exactly_once(at_once: int) -> None:
    scene = world([message(1, b"gone")], [delete(1)])
    scene.run(at_once)
    assert scene.sent() == [b"gone"]


def test_a_message_added_and_deleted_inside_one_frame_is_sent_exactly_once() -> None:
    scene = world([message(1, b"gone"), delete(1), message(1, b"again"), delete(1)])
    scene.run(100)
    assert scene.sent() == [b"gone", b"again"]


def test_a_message_added_and_deleted_inside_one_transaction_is_not_sent() -> None:
    scene = world([message(1, b"never", tx=7), delete(1, tx=7), message(2, b"kept", tx=7), commit(7, 3)])
    scene.run(100)
    assert scene.sent() == [b"kept"]


def test_a_route_whose_filter_has_as_many_terms_as_fit_sends_like_any() -> None:
    terms = " OR ".join(["n=9"] * 1400)
    assert len(terms) < SELECTOR_CHARACTERS_MAX
    scene = world([message(1, b"no"), message(2, b"yes", headers={"n": 9})], routes=(one_route(filter=terms),))
    scene.run(100)
    assert scene.sent() == [b"yes"]


# ---- large messages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_large_body_comes_from_chunks_of_the_same_checkpoint_or_of_the_local_copy(at_once: int) -> None:
    scene = world(
        [chunk(11, b"abc"), chunk(12, b"de")],
        [large(1, [11, 12], 5)],
        [chunk(13, b"fg", tx=7), large(2, [13], 2, tx=7)],
        [commit(7, 2), delete(2), delete(13), delete(1), delete(11), delete(12)],
    )
    scene.run(at_once)
    assert scene.sent() == [b"abcde", b"fg"]


def test_a_large_body_over_the_topics_limit_is_refused_before_it_is_sent() -> None:
    topics = {OUT: {"max.message.bytes": "2000"}}
    scene = world([chunk(11, b"x" * 3000), large(1, [11], 3000)], [message(2, b"fits")], topics=topics)
    _, error = stopped(scene)
    assert "too-large" in str(error)
    scene = world(
        [chunk(11, b"x" * 3000), large(1, [11], 3000)],
        [message(2, b"fits")],
        topics=topics,
        routes=[one_route(on_error="skip")],
    )
    scene.run(100)
    assert scene.sent() == [b"fits"]


# ---- what cannot be sent -------------------------------------------------------------------------------------------


BAD = message(3, b"bad")
KEYED = {"topic": OUT, "key": "header:k"}


def keyed(on_error: str, **more: Any) -> RoutesWorld:
    return world(
        [message(1, b"1", headers={"k": "x"})],
        [message(2, b"2", headers={"k": "y"}), BAD, message(4, b"4", headers={"k": "z"})],
        [message(5, b"5", headers={"k": "x"})],
        routes=[{"name": "r", "targets": [KEYED], "on_error": on_error}],
        **more,
    )


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_policy_fail_stops_the_shard_before_the_frame_with_all_before_it_checkpointed(at_once: int) -> None:
    scene = keyed("fail")
    worker, error = stopped(scene, at_once)
    assert (scene.sent(), scene.marked(), error.offset) == ([b"1"], 2, 4)
    for part in ("route r", "message 3", "WAL offset 4", "no-key", f"routes resume -j {NAME} 0 --skip 4"):
        assert part in str(error)
    assert not worker.wants_retry


def test_what_an_operator_passes_over_is_left_out_and_nothing_else_of_its_frame() -> None:
    scene = keyed("fail")
    routes = scene.routes()
    routes.check()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 100)
    assert not worker.allow_skips({}, {2})
    assert worker.allow_skips({}, {4})
    worker.recover()
    scene.drive(worker, 100)
    assert scene.sent() == [b"1", b"2", b"4", b"5"]
    (status,) = routes.statuses().values()
    assert (status.routes[0].sent, dict(status.routes[0].refused)) == (4, {"skipped-by-operator": 1})
    assert status.stopped == ""


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x01a\xff"])
def test_a_message_that_cannot_be_read_and_that_an_operator_passes_over_is_counted_by_each_route(data: bytes) -> None:
    scene = world([message(1, b"1"), add(3, data, kind=MESSAGE), message(2, b"2")])
    scene.passes.add(2)
    routes = scene.routes()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 100)
    assert scene.sent() == [b"1", b"2"]
    (status,) = routes.statuses().values()
    assert [dict(row.refused) for row in status.routes] == [{"skipped-by-operator": 1}] * 2
    assert f"message 3: {len(data)} bytes are not a message" in status.routes[0].last_error


def test_policy_skip_counts_and_goes_on() -> None:
    scene = keyed("skip")
    routes = scene.routes()
    routes.check()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 100)
    assert scene.sent() == [b"1", b"2", b"4", b"5"]
    (status,) = routes.statuses().values()
    assert dict(status.routes[0].refused) == {"no-key": 1}
    assert "no header k" in status.routes[0].last_error


def test_messages_that_no_route_matches_leave_nothing_to_report() -> None:
    scene = world([message(1, address="elsewhere")])
    routes = scene.routes()
    routes.check()
    worker = scene.worker(routes)
    worker.recover()
    routes.close()
    log = scene.broker.log(control_topic(NAME), 0)
    assert log is not None
    reported = log.end
    scene.drive(worker, 100)
    routes.close()
    assert (reported, log.end) == (1, 1)


def test_policy_dead_letter_sends_it_there_in_the_same_transaction() -> None:
    scene = keyed("dead-letter", dead_letter_topic=DEAD)
    scene.run(100)
    assert (scene.sent(), scene.sent(DEAD)) == ([b"1", b"2", b"4", b"5"], [b"bad"])


def test_a_dead_letter_that_does_not_fit_its_topic_stops_the_shard_until_it_does() -> None:
    scene = keyed("dead-letter", dead_letter_topic=DEAD, topics={OUT: TOPIC, DEAD: {"max.message.bytes": "300"}})
    worker, error = stopped(scene)
    assert (scene.sent(), scene.sent(DEAD), error.offset) == ([b"1"], [], 4)
    assert "route r: its dead letter takes 375 bytes at least, and dead-letter topic dead 300" in str(error)
    scene.broker.topics[DEAD].config["max.message.bytes"] = "2000"
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    assert worker.wants_retry
    worker.recover()
    scene.drive(worker, 100)
    assert (scene.sent(), scene.sent(DEAD)) == ([b"1", b"2", b"4", b"5"], [b"bad"])


def test_a_dead_letter_that_does_not_fit_is_left_out_where_an_operator_says_so() -> None:
    scene = keyed("dead-letter", dead_letter_topic=DEAD, topics={OUT: TOPIC, DEAD: {"max.message.bytes": "300"}})
    scene.passes.add(4)
    routes = scene.routes()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 100)
    assert (scene.sent(), scene.sent(DEAD)) == ([b"1", b"2", b"4", b"5"], [])
    (status,) = routes.statuses().values()
    assert dict(status.routes[0].refused) == {"skipped-by-operator": 1}


def test_the_group_of_the_frame_that_stops_is_not_torn() -> None:
    frames = [
        (0, 1, frame(1, marker())),
        (2, 2, frame(2, message(1, b"1"))),
        (4, 3, frame(3, message(2, b"2"), group=3, last=False)),
        (5, 3, frame(4, add(3, b"\xff", kind=MESSAGE), group=3)),
    ]
    scene = RoutesWorld(frames, ROUTE)
    _, error = stopped(scene)
    assert (scene.sent(), scene.marked(), error.offset) == ([b"1"], 2, 5)


# ---- topics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "target", "what"),
    [
        ({}, {}, "is not there.*--create --topic out"),
        ({OUT: {"min.insync.replicas": "2"}}, {}, "1 replicas and min.insync.replicas=2"),
        ({OUT: {"message.timestamp.before.max.ms": "59999"}}, {}, "before.max.ms=59999.*--alter --topic out"),
        (
            {OUT: {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.difference.max.ms": "1000"}},
            {},
            "difference.max.ms=1000: it may refuse.*--alter --topic out --add-config message.timestamp.difference",
        ),
        ({OUT: {"cleanup.policy": "compact"}}, {"key": "none"}, "is compacted: its records need a key"),
        ({OUT: {}}, {"partitioner": "partition:3"}, "has no partition 3"),
    ],
)
def test_a_target_that_cannot_be_is_an_error_at_start(topics: Any, target: Any, what: str) -> None:
    routes = [{"name": "r", "targets": [{"topic": OUT, **target}]}]
    scene = world([message(1)], routes=routes, topics={name: TOPIC | of for name, of in topics.items()})
    with pytest.raises(TopicError, match=what):
        scene.worker()


def test_a_dead_letter_topic_that_is_not_there_is_an_error_at_start() -> None:
    for routes in ([one_route(on_error="dead-letter")], [one_route(on_error="dead-letter", dead_letter_topic="own")]):
        scene = world([message(1)], routes=routes, topics={OUT: TOPIC}, dead_letter_topic=DEAD)
        topic = scene.routing.routes[0].dead_letter_topic or DEAD
        with pytest.raises(TopicError, match=f"route r: topic {topic} is not there.*--create --topic {topic}"):
            scene.worker()
    world([message(1)], routes=[one_route()], topics={OUT: TOPIC}, dead_letter_topic=DEAD).worker()


@pytest.mark.parametrize(
    ("replicas", "insync", "what"),
    [
        (2, "2", "has 2 replicas, and the journal's own 3"),
        (3, "1", "has min.insync.replicas=1, and the journal 2: .*--alter --topic out"),
        (3, "2", None),
    ],
)
def test_a_target_that_could_lose_what_the_journal_keeps_is_an_error_at_start(
    replicas: int, insync: str, what: str | None
) -> None:
    scene = world([message(1)], routes=[one_route()], topics={})
    scene.broker.create_topic(OUT, 1, replicas, TOPIC | {"min.insync.replicas": insync})
    scene.replication = 3
    with nullcontext() if what is None else pytest.raises(TopicError, match=what):
        scene.worker()


@pytest.mark.parametrize(
    "config",
    [
        {"message.timestamp.before.max.ms": "60000"},
        {"message.timestamp.before.max.ms": "60000", "message.timestamp.difference.max.ms": "1000"},
        {"message.timestamp.before.max.ms": "0", "message.timestamp.type": "LogAppendTime"},
    ],
)
def test_a_target_whose_bound_on_timestamps_ends_no_transaction_is_as_any_other(config: dict[str, str]) -> None:
    scene = world([message(1, b"1")], topics={OUT: TOPIC | config})
    scene.run(1)
    assert scene.sent() == [b"1"]


def test_a_topic_that_a_template_makes_and_that_is_missing_stops_the_shard_until_it_is_there() -> None:
    scene = world([message(1, b"1", "x")], [message(2, b"2", "y")], routes=[one_route(topic="of-{address}")])
    scene.broker.create_topic("of-x", 1, 1, TOPIC)
    worker, error = stopped(scene)
    assert "topic of-y is not there" in str(error)
    assert scene.sent("of-x") == [b"1"]
    assert not worker.wants_retry
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    assert worker.wants_retry
    worker.recover()
    scene.drive(worker, 100)
    assert worker.state is ShardState.STOPPED
    scene.broker.create_topic("of-y", 1, 1, TOPIC)
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    worker.recover()
    scene.drive(worker, 100)
    assert (scene.sent("of-x"), scene.sent("of-y")) == ([b"1"], [b"2"])


def test_a_shard_that_a_route_stops_again_sends_no_rows_meanwhile() -> None:
    behind = [[add(number + 100)] for number in range(20)]
    scene = world([message(2, b"2", "y")], *behind, routes=[one_route(topic="of-{address}")], records_per_produce=2)
    worker, _ = stopped(scene)

    def table_end() -> int:
        log = scene.broker.log(table_topic(NAME), 0)
        assert log is not None
        return log.end

    end = table_end()
    for _ in range(3):
        scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
        worker.recover()
        scene.drive(worker, 100)
        assert (worker.state, table_end()) == (ShardState.STOPPED, end)


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead-letter"])
def test_a_record_is_measured_against_the_topic_of_a_template_when_it_is_the_first_for_it_too(on_error: str) -> None:
    bodies = [b"l" * 1_000_100, b"s", b"m" * 1_000_050]
    scene = world(
        *([message(at, body, "x")] for at, body in enumerate(bodies, start=1)),
        routes=[one_route(topic="of-{address}", on_error=on_error)],
        topics={"of-x": TOPIC, DEAD: TOPIC},
        dead_letter_topic=DEAD,
    )
    scene.run(1)
    assert (scene.sent("of-x"), scene.sent(DEAD)) == (bodies, [])


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_a_large_record_too_waits_for_a_topic_that_is_missing(on_error: str) -> None:
    body = b"l" * 1_000_100
    scene = world(
        [message(1, body, "x")],
        routes=[one_route(topic="of-{address}", on_error=on_error)],
        topics={DEAD: TOPIC},
        dead_letter_topic=DEAD,
    )
    worker, error = stopped(scene)
    assert "topic of-x is not there" in str(error)
    scene.broker.create_topic("of-x", 1, 1, TOPIC)
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    assert worker.wants_retry
    worker.recover()
    scene.drive(worker, 100)
    assert (scene.sent("of-x"), scene.sent(DEAD)) == ([body], [])


@pytest.mark.parametrize("earlier", [[], [[message(1, b"1", headers={"k": "x"})]]])
def test_why_a_message_is_refused_does_not_depend_on_what_was_sent_to_its_topic_before(earlier: list[Any]) -> None:
    scene = world(
        *earlier,
        [chunk(11, b"x" * 3000), large(2, [11], 3000)],
        routes=[{"name": "r", "targets": [{"topic": "of-{address}", "key": "header:k"}], "on_error": "skip"}],
        topics={"of-a": {"max.message.bytes": "2000"}},
    )
    routes = scene.routes()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 1)
    (status,) = routes.statuses().values()
    assert dict(status.routes[0].refused) == {"too-large": 1}


def test_topics_that_senders_name_and_that_there_are_not_are_remembered_up_to_a_bound() -> None:
    targets = world(topics={"of-a": {"max.message.bytes": "2000"}}).routes().targets
    targets.look_up(["of-a"])
    names = [f"of-{number}" for number in range(FAULTS_KEPT + 20)]
    for start in range(0, len(names), 60):
        targets.look_up(names[start : start + 60])
    known = [name for name in names if targets.knows(name)]
    assert known == names[-FAULTS_KEPT:]
    assert targets.fault(names[-1]) == targets.unfit(names[-1]) != ""
    assert "asked for again" in targets.fault(names[0])
    assert (targets.knows("of-a"), targets.fault("of-a")) == (True, "")


def test_a_message_that_would_only_return_asks_for_no_topic() -> None:
    headers = {"kafka.topic": "of-x"}
    scene = world([message(1, b"1", "x", headers=headers)], routes=[one_route(topic="of-{address}")])
    routes = scene.routes()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 100)
    assert (worker.state, routes.targets.knows("of-x")) == (ShardState.RUNNING, False)


def test_a_stop_began_when_the_shard_first_stopped_there_however_often_it_has_tried_since() -> None:
    scene = world([message(1, b"1", "x")], [message(2, b"2", "y")], routes=[one_route(topic="of-{address}")])
    routes = scene.routes()
    worker = scene.worker(routes)

    def stopped_since() -> tuple[int, int]:
        worker.recover()
        scene.drive(worker, 1)
        (status,) = routes.statuses().values()
        return status.stopped_at, status.stopped_since

    scene.timeline.wait(100.0, lambda: False)
    first = stopped_since()
    assert first == (2, int(scene.wall_ms()))
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    assert stopped_since() == first
    scene.broker.create_topic("of-x", 1, 1, TOPIC)
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    assert stopped_since() == (4, int(scene.wall_ms()))
    scene.broker.create_topic("of-y", 1, 1, TOPIC)
    scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
    assert stopped_since() == (0, 0)


def test_a_stop_is_shown_until_its_frame_is_checkpointed_however_often_the_shard_tries_again() -> None:
    scene = world([message(1, b"1", "x")], [message(2, b"2", "x")], routes=[one_route(topic="of-{address}")])
    routes = scene.routes()
    worker = scene.worker(routes)

    def shown() -> int:
        (status,) = routes.statuses().values()
        assert status.stopped == str(worker.stopped_by or "")
        return status.stopped_at

    def reports() -> int:
        routes.close()
        log = scene.broker.log(control_topic(NAME), 0)
        assert log is not None
        return log.end

    def try_again() -> None:
        scene.timeline.wait(ROUTE_RETRY_S, lambda: False)
        worker.recover()
        assert worker.state is ShardState.RUNNING

    worker.recover()
    scene.drive(worker, 1)
    reported = reports()
    try_again()
    assert (shown(), reports()) == (2, reported)
    scene.drive(worker, 1)
    assert (worker.state, shown(), reports()) == (ShardState.STOPPED, 2, reported)
    scene.broker.create_topic("of-x", 1, 1, TOPIC)
    try_again()
    worker.take(scene.frames[1:2])
    assert shown() == 2
    scene.drive(worker, 1)
    assert (shown(), worker.stopped_by) == (0, None)
    assert reports() > reported


def test_a_shard_that_tries_again_is_not_made_to_recover_by_what_an_operator_passes_over() -> None:
    scene = world([message(1, b"1", "x")], routes=[one_route(topic="of-{address}")])
    worker, _ = stopped(scene)
    worker.recover()
    assert not worker.allow_skips({}, {2})
    scene.drive(worker, 1)
    assert (scene.marked(), worker.stopped_by) == (2, None)


def test_a_wal_that_cannot_be_read_when_a_shard_tries_again_is_shown_as_what_stops_it() -> None:
    scene = world([message(1, b"1", "x")], routes=[one_route(topic="of-{address}")])
    routes = scene.routes()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 1)
    worker.recover()
    damaged = CorruptionError("damaged", topic="j.wal", partition=0, offset=2)
    worker.stop_unreadable(damaged)
    (status,) = routes.statuses().values()
    assert (worker.stopped_by, status.stopped) == (damaged, "")
    worker.recover()
    assert worker.stopped_by is None


def test_a_stop_that_another_worker_has_passed_is_not_shown_any_more() -> None:
    scene = world([message(1, b"1", "x")], routes=[one_route(topic="of-{address}")])
    routes = scene.routes()
    worker = scene.worker(routes)
    worker.recover()
    scene.drive(worker, 1)
    scene.broker.create_topic("of-x", 1, 1, TOPIC)
    other = scene.worker()
    other.recover()
    scene.drive(other, 1)
    worker.recover()
    (status,) = routes.statuses().values()
    assert (worker.stopped_by, status.stopped) == (None, "")


def test_a_group_that_never_gets_through_is_tried_alone_and_shown_until_it_does() -> None:
    faults = Endless()
    scene = world([message(1, b"1"), message(2, b"2")], [message(3, b"3")], faults=faults)
    routes = scene.routes()
    routes.check()
    worker = scene.worker(routes)
    worker.recover()
    worker.take(scene.frames[:1])
    worker.checkpoint_if_due(now=True)
    faults.is_on = True
    seen = []
    for _ in range(5):
        rest = worker.take(scene.frames)
        worker.checkpoint_if_due(now=True)
        assert worker.state is ShardState.RECOVERING
        worker.recover()
        (status,) = routes.statuses().values()
        assert status.stopped == str(worker.stopped_by or "")
        seen.append((rest, status.stopped_at))
    assert seen == [(None, 0), (4, 0), (4, 2), (4, 2), (4, 2)]
    for part in ("ends at WAL offset 2", "what routes send of its 2 messages", "4 times", "transaction_timeout_ms"):
        assert part in status.stopped
    faults.is_on = False
    scene.drive(worker, 100)
    assert (scene.sent(), worker.stopped_by) == ([b"1", b"2", b"3"], None)


def test_a_shard_that_is_fenced_time_after_time_is_not_taken_for_too_much() -> None:
    scene = world([message(1, b"1")])
    worker, other = scene.worker(), scene.worker()
    other.recover()
    other.take(scene.frames[:1])
    other.checkpoint_if_due(now=True)
    for _ in range(3):
        worker.recover()
        worker.take(scene.frames)
        other.recover()
        worker.checkpoint_if_due(now=True)
        assert (worker.state, worker.stopped_by) == (ShardState.FENCED, None)


def test_a_topic_that_is_deleted_meanwhile_stops_the_shard() -> None:
    scene = world([message(1, b"1")], [message(2, b"2")])
    worker = scene.worker()
    worker.recover()
    worker.take(scene.frames[:2])
    worker.checkpoint_if_due(now=True)
    scene.broker.delete_topic(OUT)
    scene.drive(worker, 100)
    assert isinstance(worker.stopped_by, RouteStopError)
    assert "topic out is not there" in str(worker.stopped_by)
    assert worker.stopped_by.offset == 4


def test_a_limit_that_became_smaller_is_found_out_and_the_message_refused() -> None:
    scene = world([message(1, b"x" * 3000)], [message(2, b"small")], routes=[one_route(on_error="skip")])
    worker = scene.worker()
    worker.recover()
    scene.broker.topics[OUT].config["max.message.bytes"] = "2000"
    scene.drive(worker, 100)
    assert scene.sent() == [b"small"]
    assert [sizes.batch_bytes_max for sizes in scene.sized][-1] < 2000, "no batch is larger than the topic takes"


def test_a_target_that_was_made_anew_with_more_partitions_is_used_so_within_seconds() -> None:
    scene = world()
    routes = scene.routes()
    routes.check()
    scene.broker.delete_topic(OUT)
    scene.broker.create_topic(OUT, 6, 1, TOPIC)
    assert routes.targets.partitions(OUT) == 1
    scene.timeline.pass_to(scene.timeline.now() + REFRESH_EVERY_S)
    routes.tick()
    assert routes.targets.partitions(OUT) == 6
    assert REFRESH_EVERY_S <= 5
