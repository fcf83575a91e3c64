"""What `routes test --id` says of topics that the routes' records cannot go to now."""

from __future__ import annotations

from typing import Any

import pytest

from journal.cli.routes.live import LiveMessage
from journal.config import Settings
from journal.routing.router import Router
from journal.store.message_records import encode_message
from journal.store.model import Message, Value
from journal.topics.names import OwnTopics
from streams.routes.targets import Targets, fixed_topics
from tests.support.routes import DEAD, NAME, OUT, TOPIC, RoutesWorld


def stop_of(target: dict[str, Any], topics: dict[str, dict[str, str]], **fields: Any) -> str:
    """Why a shard with such a route would stop at a message with the property `to`, as the command finds it."""
    world = RoutesWorld([], {"name": "r", "targets": [target], **fields}, topics=topics, dead_letter_topic=DEAD)
    settings = Settings(journal=NAME, routing=world.routing)
    targets = Targets(world.kafka(), settings)
    targets.look_up(fixed_topics(world.routing))
    properties: dict[str, Value] = {"to": "made", "n": 1}
    message = LiveMessage(7, encode_message(Message("a", b"x", {}, properties)), lambda chunks: None, targets)
    router = Router(world.routing, journal=NAME, own_topics=OwnTopics(NAME), bytes_max=targets.bytes_max)
    message.routed(router)
    return message.stop(settings, router)


@pytest.mark.parametrize(
    ("target", "topics", "says"),
    [
        ({"topic": OUT}, {}, f"topic {OUT} is not there"),
        ({"topic": "{to}"}, {}, "topic made is not there"),
        ({"topic": OUT, "key": "none"}, {OUT: TOPIC | {"cleanup.policy": "compact"}}, "compacted"),
        ({"topic": OUT, "partitioner": "partition:4"}, {OUT: TOPIC}, "has no partition 4"),
        ({"topic": OUT, "key": "header:none"}, {OUT: TOPIC}, "route r cannot send it (no-key)"),
    ],
)
def test_a_message_that_would_stop_its_shard_is_told_as_one(
    target: dict[str, Any], topics: dict[str, dict[str, str]], says: str
) -> None:
    assert says in stop_of(target, topics)


def test_a_dead_letter_that_has_nowhere_to_go_stops_the_shard() -> None:
    lacking = {"topic": OUT, "key": "header:none"}
    assert f"topic {DEAD} is not there" in stop_of(lacking, {OUT: TOPIC}, on_error="dead-letter")
    assert stop_of(lacking, {OUT: TOPIC, DEAD: TOPIC}, on_error="dead-letter") == ""


def test_a_message_that_goes_out_or_is_passed_over_stops_nothing() -> None:
    assert stop_of({"topic": "{to}"}, {"made": TOPIC}) == ""
    assert stop_of({"topic": OUT, "key": "header:none"}, {OUT: TOPIC}, on_error="skip") == ""
