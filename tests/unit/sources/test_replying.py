"""Replies of several sources, each to what waits in its own queue of requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journal.process.clocks import AgreedTime
from journal.store.model import QueueConfig
from tests.support.stores import Clock
from tests.unit.sources.scene import SourcesScene

PRICES = {"name": "prices", "topics": ["p"], "replies": True, "requests": "ask-price", "reply_timeout_ms": 60_000}
STOCKS = PRICES | {"name": "stocks", "topics": ["s"], "requests": "ask-stock"}
DEAD: dict[str, Any] = {"dead_letter_topic": "dead"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SourcesScene]:
    made = SourcesScene(tmp_path)
    for topic in ("p", "s", "dead"):
        made.broker.topic(topic)
    for queue in ("ask-price", "ask-stock", "a price", "a stock"):
        made.declare(QueueConfig(queue, queue))
    yield made
    made.close()


def reply(scene: SourcesScene, topic: str, body: bytes, correlation_id: bytes) -> None:
    scene.broker.produce(topic, body, headers=[("jms.string.JMSCorrelationID", correlation_id)])


def test_a_reply_answers_the_request_of_its_own_source_if_several_have_its_correlation_id(scene: SourcesScene) -> None:
    scene.send("ask-price", b"?", JMSReplyTo="a price", JMSCorrelationID="1")
    scene.send("ask-stock", b"?", JMSReplyTo="a stock", JMSCorrelationID="1")
    reply(scene, "s", b"7 pieces", b"1")
    with scene.taking(PRICES, STOCKS, **DEAD):
        scene.wait_committed("s", 1)
        scene.wait_until(lambda: scene.bodies("a stock") == [b"7 pieces"])
        assert (scene.bodies("ask-price"), scene.bodies("ask-stock")) == ([b"?"], [])
        reply(scene, "s", b"once more", b"1")
        scene.wait_committed("s", 2)
        assert scene.reasons() == [b"no-request"]
        reply(scene, "p", b"3 euros", b"1")
        scene.wait_until(lambda: scene.bodies("a price") == [b"3 euros"])
    assert scene.bodies("ask-price") == []


def test_a_request_that_is_given_up_has_no_header_that_kafka_would_cut_off(scene: SourcesScene) -> None:
    scene.send("ask-price", b"?", **{"JMSReplyTo": "a price", "a\0b": "x", "c": "y"})
    scene.now_ms += 60_001
    with scene.taking(PRICES, **DEAD):
        scene.wait_until(lambda: scene.broker.letters)
    names = [name for name, _ in scene.broker.letters[0].headers]
    assert [name for name in names if "\0" in name] == []
    assert "kafka-journal.header.string.c" in names


def test_a_wall_clock_that_is_set_forward_gives_up_no_request_before_clocks_have_agreed(scene: SourcesScene) -> None:
    clock = Clock()
    agreed_ms = scene.agreed_ms = AgreedTime(clock, clock.elapsed, 60_000)
    clock.now_ms += 60_000
    assert agreed_ms() == clock()
    scene.now_ms = clock()
    scene.send("ask-price", b"?", JMSReplyTo="a price")
    with scene.taking(PRICES, **DEAD):
        clock.stepped_ms += 3_600_000
        scene.look_again()
        assert scene.bodies("ask-price") == [b"?"]
        clock.now_ms += 60_000
        scene.wait_until(lambda: scene.broker.letters)
    assert scene.bodies("ask-price") == []


def test_a_reply_for_an_address_that_is_gone_stops_nobody_elses(scene: SourcesScene) -> None:
    scene.send("ask-price", b"?", JMSReplyTo="temp-queue://gone", JMSCorrelationID="1")
    scene.send("ask-price", b"?", JMSReplyTo="a price", JMSCorrelationID="2")
    reply(scene, "p", b"to nobody", b"1")
    reply(scene, "p", b"3 euros", b"2")
    with scene.taking(PRICES, **DEAD):
        scene.wait_committed("p", 2)
        scene.wait_until(lambda: scene.bodies("a price") == [b"3 euros"])
        assert scene.reasons() == [b"bad-address"]
        assert len(scene.bodies("ask-price")) == 1
        scene.now_ms += 60_001
        scene.wait_until(lambda: scene.reasons() == [b"bad-address", b"no-reply"])
