"""Routes: the topics that they send to, which are checked, missing, or made anew."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from journal.errors import RouteStopError, TopicError
from journal.topics.names import table_topic
from streams.routes.targets import FAULTS_KEPT
from streams.routes.worker_routes import REFRESH_EVERY_S
from streams.worker.shard_standing import ROUTE_RETRY_S, ShardState
from tests.support.build import add
from tests.support.routes import DEAD, NAME, OUT, TOPIC, chunk, large, message, one_route
from tests.unit.streams.routes_scene import stopped, world

# ---- topics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "target", "what"),
    [
        ({}, {}, "is not there.*--create --topic out"),
        ({OUT: {"min.insync.replicas": "2"}}, {}, "1 replicas and min.insync.replicas=2"),
        ({OUT: {"message.timestamp.before.max.ms": "59999"}}, {}, "before.max.ms=59999.*--entity-name out"),
        (
            {OUT: {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.difference.max.ms": "1000"}},
            {},
            "difference.max.ms=1000: it may refuse.*--entity-name out --add-config message.timestamp.difference",
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
        (3, "1", "has min.insync.replicas=1, and the journal 2: .*--entity-name out"),
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
def test_even_the_first_record_for_a_templates_topic_is_measured_against_its_limit(on_error: str) -> None:
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
def test_a_large_record_waits_for_a_templates_topic_that_is_missing(on_error: str) -> None:
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
