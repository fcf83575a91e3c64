"""Queues take what becomes of a record by their filters, which know what a route's filter knows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journal.routing.selector.selector import Selector
from journal.routing.view import MessageFields
from journal.sources.filters import Filters
from journal.store.message_records import encode_message
from journal.store.model import Message, QueueConfig, Routing, Value
from journal.v1 import store_pb2 as pb
from tests.unit.sources.scene import SourcesScene

ID = 17
FIELDS = ("JMSDestination", "address", "JMSTimestamp", "JMSPriority", "JMSExpiration", "JMSDeliveryTime")
MESSAGES = (
    Message("in.a", b"", {"JMSType": "t"}, {"n": 3}, 7, 1000, 2000, 3000),
    Message("in.a"),
    Message("in.a", b"", {"JMSPriority": 1}, {"JMSExpiration": "never", "address": "home"}),
)
SELECTORS = (
    *(f"{name} IS NULL" for name in (*FIELDS, "JMSDeliveryMode", "JMSType", "n")),
    *(f"{name} {sign} {value}" for name in FIELDS for sign in "<=>" for value in (0, 4, 2000)),
    *(f"{name} = '{value}'" for name in FIELDS for value in ("in.a", "home", "never")),
    "JMSDeliveryMode = 'PERSISTENT'",
    "JMSType = 't' AND n = 3",
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SourcesScene]:
    scene = SourcesScene(tmp_path)
    yield scene
    scene.close()


def test_a_queues_filter_and_a_routes_filter_of_one_text_are_of_the_same_messages(scene: SourcesScene) -> None:
    takes = Filters(scene.store).takes
    for text in SELECTORS:
        selector = Selector(text)
        for message in MESSAGES:
            stored = pb.Message.FromString(encode_message(message))
            routed = selector.selects(MessageFields(ID, stored).value)
            assert takes(message, QueueConfig("q", "in.a", filter=text)) is routed, (text, message)


def test_a_filter_that_cannot_be_evaluated_keeps_messages_from_its_own_queue_alone(
    scene: SourcesScene, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(dict[str, Value]):
        def get(self, name: object, default: object = None) -> Any:
            raise ZeroDivisionError("no such thing")

    takes = Filters(scene.store).takes
    message = Message("in.a", properties=Broken())
    for _ in range(2):
        assert not takes(message, QueueConfig("bad", "in.a", filter="n = 3"))
        assert takes(message, QueueConfig("good", "in.a", filter="JMSPriority = 4"))
    assert [record.levelname for record in caplog.records if "queue bad" in record.getMessage()] == ["ERROR"]


def test_compiled_filters_are_bounded_in_bytes_and_what_is_none_leaves_nothing(scene: SourcesScene) -> None:
    takes = Filters(scene.store, bytes_max=100_000).takes

    def kept() -> int:
        return sum(isinstance(each, Selector) for each in gc.get_objects())

    before = kept()
    for number in range(100):
        filter = f"p{number} = 1" + number * " "
        for _ in range(2):
            assert not takes(MESSAGES[0], QueueConfig("q", "in.a", filter=filter))
        assert not takes(MESSAGES[0], QueueConfig("bad", "in.a", filter=filter + "!"))
    assert 0 < kept() - before < 40


def test_a_durable_subscription_with_as_many_terms_as_a_selector_may_have_stops_no_source(scene: SourcesScene) -> None:
    scene.declare(QueueConfig("long", "in.a", filter=" OR ".join(["n=9"] * 1400)), QueueConfig("q", "in.a"))
    scene.broker.topic("a")
    scene.broker.produce("a", b"1")
    with scene.taking({"name": "in", "topics": ["a"], "address": "in.a"}):
        scene.wait_committed("a", 1)
    assert (scene.bodies("long"), scene.bodies("q")) == ([], [b"1"])


def test_a_message_that_is_not_stored_yet_has_no_id_to_filter_by(scene: SourcesScene) -> None:
    takes = Filters(scene.store).takes
    assert takes(MESSAGES[0], QueueConfig("q", "in.a", filter="JMSMessageID IS NULL"))


def test_a_queue_that_filters_by_a_field_gets_its_records(scene: SourcesScene) -> None:
    scene.declare(QueueConfig("q", "in.a", filter="JMSExpiration = 0 AND JMSDestination = 'in.a'"))
    scene.broker.topic("a")
    scene.broker.produce("a", b"1", b"2")
    with scene.taking({"name": "s", "topics": ["a"], "address": "in.a"}):
        scene.wait_committed("a", 2)
        scene.wait_until(lambda: scene.source("s")["records"] == 2)
    assert scene.bodies("q") == [b"1", b"2"]
    assert scene.status.as_json()["unrouted"] == 0


def test_a_record_that_no_queues_filter_takes_is_committed_and_gone_and_is_no_refusal(scene: SourcesScene) -> None:
    scene.declare(QueueConfig("q", "in.a", filter="kind = 'wanted'"))
    scene.broker.topic("a")
    scene.broker.topic("dead")
    scene.broker.produce("a", b"1")
    scene.broker.produce("a", b"2", headers=[("jms.string.kind", b"wanted")])
    source = {"name": "s", "topics": ["a"], "address": "in.a", "on_error": "dead-letter", "dead_letter_topic": "dead"}
    with scene.taking(source):
        scene.wait_committed("a", 2)
        scene.wait_until(lambda: scene.status.as_json()["unrouted"])
    assert scene.bodies("q") == [b"2"]
    assert (scene.status.as_json()["unrouted"], scene.source("s")["refused"], scene.broker.letters) == (1, {}, [])


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("no.such", "there is no address no.such"),
        ("bare", "address bare has no queue that could take a message"),
    ],
)
def test_an_address_that_cannot_be_sent_to_stops_a_source_without_another_policy(
    scene: SourcesScene, address: str, reason: str
) -> None:
    scene.store.create_address("bare")
    scene.broker.topic("a")
    scene.broker.produce("a", b"1")
    with scene.taking({"name": "s", "topics": ["a"], "address": address}):
        stopped = scene.wait_stopped("s")
    assert reason in stopped
    assert "(bad-address)" in stopped
    assert scene.broker.committed.get(("a", 0), 0) == 0


@pytest.mark.parametrize("routing", list(Routing))
def test_a_filter_that_is_none_ends_its_own_queue_alone(
    scene: SourcesScene, routing: Routing, caplog: pytest.LogCaptureFixture
) -> None:
    bad = QueueConfig("bad", "in.a", routing, filter="kind =")
    scene.declare(bad, replace(bad, name="good", filter=""), QueueConfig("alone", "in.b", filter="kind ="))
    scene.broker.topic("a")
    scene.broker.topic("b")
    scene.broker.produce("a", b"1", b"2")
    scene.broker.produce("b", b"3")
    sources = [{"name": "s", "topics": ["a"], "address": "in.a"}, {"name": "o", "topics": ["b"], "address": "in.b"}]
    with scene.taking(*sources):
        scene.wait_committed("a", 2)
        scene.wait_committed("b", 1)
        scene.wait_until(lambda: scene.status.as_json()["unrouted"] == 1)
    assert (scene.bodies("bad"), scene.bodies("good"), scene.bodies("alone")) == ([], [b"1", b"2"], [])
    assert [scene.source(name)["refused"] for name in "so"] == [{}, {}]
    for name in ("bad", "alone"):
        assert sum(f"queue {name} is not a selector" in record.getMessage() for record in caplog.records) == 1
