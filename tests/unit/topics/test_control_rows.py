"""Control rows as they change, and what becomes of rows that nothing depends on. The Kafka is the simulated one."""

from __future__ import annotations

import logging

import pytest
from google.protobuf.message import Message

from journal.errors import RowError
from journal.kafka.ports import Sent
from journal.topics.control_keys import (
    EPOCH_KEY,
    HAND_OVER_KEY,
    IDENTITY_KEY,
    RELEASED_KEY,
    node_key,
    skip_key,
    source_key,
)
from journal.topics.control_reading import ControlWatcher, read_control
from journal.v1.journal_pb2 import Epoch, HandOver, Identity, NodeStatus, Released, SkipRequest, SourceTopics
from journal.wire.frames import FORMAT, MAGIC
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL

LIMIT_S = 10.0
IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=JOURNAL, name="j", shards=2)


class Control:
    """A journal's control topic, and its watcher."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.kafka = SimulatedKafka(self.broker)
        self.kafka.cluster().create("j.control", 1, 1, {}, LIMIT_S)
        self.watcher = ControlWatcher(self.kafka, "j", self.broker.timeline.now)
        self.write(IDENTITY_KEY, IDENTITY)

    def write(self, key: bytes, row: Message | bytes | None) -> None:
        value = row.SerializeToString() if isinstance(row, Message) else row
        self.kafka.plain_producer().send([Sent("j.control", 0, key, value)], LIMIT_S)


@pytest.fixture
def control() -> Control:
    return Control()


def test_a_watcher_shows_each_row_as_it_comes(control: Control) -> None:
    control.write(EPOCH_KEY, Epoch(epoch=1, node="one"))
    rows = control.watcher.catch_up(LIMIT_S)
    assert (rows.require_identity("j").shards, rows.epoch.node, rows.released) == (2, "one", None)
    control.write(RELEASED_KEY, Released(epoch=1, node="one", to="two"))
    control.write(HAND_OVER_KEY, HandOver(epoch=1, to="two"))
    control.write(node_key("two"), NodeStatus(name="two", role="standby", fit=True))
    control.write(skip_key(1, 7), SkipRequest(shard=1, offset=7))
    while control.watcher.poll(0.0):
        pass
    rows = control.watcher.rows
    assert rows.released is not None
    assert rows.hand_over is not None
    assert (rows.released.to, rows.hand_over.to, list(rows.nodes), list(rows.skips)) == (
        "two",
        "two",
        ["two"],
        [(1, 7)],
    )
    assert rows.nodes["two"].status.fit
    assert rows == control.watcher.catch_up(LIMIT_S)


def test_a_tombstone_takes_a_node_away(control: Control) -> None:
    control.write(node_key("two"), NodeStatus(name="two"))
    control.watcher.catch_up(LIMIT_S)
    control.write(node_key("two"), None)
    assert control.watcher.poll(0.0)
    assert control.watcher.rows.nodes == {}


def test_nothing_new_is_no_change(control: Control) -> None:
    control.watcher.catch_up(LIMIT_S)
    assert not control.watcher.poll(0.0)


def test_advice_that_does_not_parse_keeps_nobody_from_reading_the_epoch(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    control.write(EPOCH_KEY, Epoch(epoch=3))
    control.write(node_key("two"), b"\xff\xff")
    control.write(HAND_OVER_KEY, b"\xff\xff")
    with caplog.at_level(logging.WARNING, logger="journal.kafka"):
        rows = read_control(control.kafka, "j", control.broker.timeline.now, LIMIT_S)
    assert (rows.epoch.epoch, rows.nodes, rows.hand_over) == (3, {}, None)
    assert len(caplog.records) == 2


def test_a_row_of_a_source_that_does_not_parse_is_known_as_such_and_keeps_nobody_from_reading_the_epoch(
    control: Control,
) -> None:
    control.write(EPOCH_KEY, Epoch(epoch=3))
    control.write(source_key("in"), b"\xff\xff")
    control.write(source_key("other"), SourceTopics(source="other", ids={"t": "id"}))
    rows = control.watcher.catch_up(LIMIT_S)
    other = rows.source_topics.pop("other")
    assert other is not None
    assert (rows.epoch.epoch, rows.source_topics, dict(other.ids)) == (3, {"in": None}, {"t": "id"})


def test_an_epoch_that_does_not_parse_is_an_error(control: Control) -> None:
    control.write(EPOCH_KEY, b"\xff\xff")
    with pytest.raises(RowError, match=r"j\.control\[0\]@"):
        control.watcher.catch_up(LIMIT_S)
