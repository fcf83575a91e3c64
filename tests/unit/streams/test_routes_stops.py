"""Routes: a shard that a route has stopped tries again, and says so until it is past that."""

from __future__ import annotations

from journal.errors import CorruptionError
from journal.topics.names import control_topic
from streams.worker.shard_standing import ROUTE_RETRY_S, ShardState
from tests.support.routes import NAME, TOPIC, message, one_route
from tests.unit.streams.routes_scene import Endless, stopped, world


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
