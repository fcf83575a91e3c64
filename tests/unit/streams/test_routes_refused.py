"""Routes: what cannot be sent is refused as the policy of its route says."""

from __future__ import annotations

import pytest

from journal.topics.names import control_topic
from journal.v1.store_pb2 import MESSAGE
from journal.words import counted_are
from streams.worker.shard_standing import ROUTE_RETRY_S
from tests.support.build import add, frame, marker
from tests.support.routes import DEAD, NAME, OUT, TOPIC, RoutesWorld, message
from tests.unit.streams.routes_scene import ROUTE, keyed, stopped, world

# ---- what cannot be sent -------------------------------------------------------------------------------------------


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
    assert f"message 3: {counted_are(len(data), 'byte')} not a message" in status.routes[0].last_error


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


def test_policy_dead_letter_sends_a_refused_message_to_its_topic_in_the_same_transaction() -> None:
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
