"""Topics of sources that vanish, or that may not be seen or read whole: each stops its own source at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.store.model import QueueConfig
from tests.unit.ingress_scene import Scene

IN = {"name": "in", "pattern": "t.*", "address": "a"}
OTHER = {"name": "other", "topics": ["u"], "address": "a"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    made.broker.topic("t")
    made.broker.topic("u")
    made.declare(QueueConfig("a", "a"))
    yield made
    made.close()


def test_topics_whose_settings_nobody_may_see_are_consumed(scene: Scene) -> None:
    scene.broker.closed |= {"t", "u"}
    scene.broker.produce("t", b"1")
    scene.broker.produce("u", b"2")
    with scene.taking(IN, OTHER):
        scene.wait_committed("t", 1)
        scene.wait_committed("u", 1)


def test_a_new_topic_that_may_not_be_read_stops_its_source_alone_until_it_may_be(scene: Scene) -> None:
    """Kafka takes no offset of a topic that may not be read, nor those that are committed with it."""
    scene.broker.committed |= {("t", 0): 0}
    scene.broker.topic("t-2")
    scene.broker.refuses = lambda offsets, beside: "no" if ("t-2", 0) in offsets else ""
    scene.broker.produce("u", b"1")
    scene.broker.produce("t-2", b"2")
    with scene.taking(IN, OTHER):
        assert scene.wait_stopped("in").startswith("where it begins in t-2 cannot be committed: ")
        scene.wait_committed("u", 1)
        scene.broker.refuses = lambda offsets, beside: ""
        scene.wait_committed("t-2", 1)
        scene.wait_until(lambda: scene.source("in")["error"] == "")


def test_a_topic_that_a_consumer_finds_gone_stops_no_pattern(scene: Scene) -> None:
    scene.broker.topic("t-2")
    with scene.taking(IN, list_every_s=1000):
        scene.wait_until(lambda: ("t-2", 0) in scene.broker.committed)
        del scene.broker.topics["t-2"], scene.broker.committed["t-2", 0]  # Kafka deletes its offsets with it
        scene.broker.gone.add("t-2")
        scene.broker.produce("t", b"1")
        scene.wait_committed("t", 1)
        assert scene.source("in")["error"] == ""


def test_a_topic_that_a_consumer_finds_gone_although_it_is_listed_stops_its_source(scene: Scene) -> None:
    with scene.taking(IN, OTHER, list_every_s=1000):
        scene.wait_until(lambda: ("t", 0) in scene.broker.committed)
        scene.broker.gone.add("t")
        assert scene.wait_stopped("in") == "topic t is gone"
        assert scene.source("in")["state"] == "stopped"
        scene.broker.produce("u", b"1")
        scene.wait_committed("u", 1)


def test_a_source_whose_partition_is_gone_goes_on_once_its_offset_is_deleted(scene: Scene) -> None:
    scene.broker.committed |= {("t-2", 0): 3, ("t", 0): 0}
    scene.broker.produce("t", b"1")
    with scene.taking(IN):
        assert "t-2[0] is gone" in scene.wait_stopped("in")
        assert scene.source("in")["state"] == "waiting"
        del scene.broker.committed["t-2", 0]
        scene.wait_committed("t", 1)
        scene.wait_until(lambda: scene.source("in")["error"] == "")


def test_why_a_source_is_stopped_is_no_longer_than_what_is_read(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.broker.produce("t", b"", headers=[("kafka-journal.property.string.to", b"x" * 800_000)])
    with scene.taking(IN | {"address": "{to}"}):
        assert "bad-address" in scene.wait_stopped("in")
    assert len(scene.source("in")["error"]) < 1500
    assert max(len(record.getMessage()) for record in caplog.records) < 1500


def test_a_source_that_is_stopped_is_behind_all_the_same(scene: Scene) -> None:
    scene.broker.produce("t", b"\xff", b"2", b"3")
    with scene.taking(IN | {"value": "text"}):
        scene.wait_stopped("in")
        scene.wait_until(lambda: scene.source("in")["lag"] == 3)
        scene.broker.produce("t", b"4")
        scene.wait_until(lambda: scene.source("in")["lag"] == 4)
        scene.stops.ask("in", skip=True)
        scene.wait_committed("t", 4)
        scene.wait_until(lambda: scene.source("in")["lag"] == 0)
