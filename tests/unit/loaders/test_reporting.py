"""A node's rows: written soon, of each key the newest, whatever Kafka does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from journal.errors import KafkaUnavailableError
from journal.kafka.ports import Sent
from journal.topics.control_keys import HAND_OVER_KEY, node_key
from journal.v1.journal_pb2 import HandOver, NodeStatus
from loaders.node.reporting import NodeReporter
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

LIMIT_S = 30.0


class Producer:
    """`ports.PlainProducer` that refuses until it is let."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        return self._kafka.reachable.is_set()

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        self._kafka.asked.release()
        if not self._kafka.reachable.is_set():
            raise KafkaUnavailableError("no broker")
        self._kafka.written += records
        self._kafka.arrived.release()
        return list(range(len(records)))

    def close(self) -> None:
        self._kafka.closed += 1


class Kafka(SimulatedKafka):
    """One whose plain producers can be made to fail."""

    def __init__(self) -> None:
        super().__init__(SimulatedBroker(Timeline(), Faults()))
        self.reachable = threading.Event()
        self.asked = threading.Semaphore(0)
        self.arrived = threading.Semaphore(0)
        self.written: list[Sent] = []
        self.closed = 0

    def plain_producer(self) -> Producer:  # type: ignore[override]
        return Producer(self)


def role_of(sent: Sent) -> str:
    return NodeStatus.FromString(sent.value or b"").role


def test_rows_are_written_soon() -> None:
    kafka = Kafka()
    kafka.reachable.set()
    reporter = NodeReporter(kafka, "j")
    reporter.post(node_key("one"), NodeStatus(name="one", role="standby"))
    assert kafka.arrived.acquire(timeout=LIMIT_S)
    reporter.post(node_key("one"), None)
    reporter.close(LIMIT_S)
    assert [(sent.topic, sent.partition, sent.key) for sent in kafka.written] == [("j.control", 0, b"node/one")] * 2
    assert kafka.written[1].value is None
    assert kafka.closed == 1


def test_while_kafka_is_away_only_the_newest_of_each_key_waits() -> None:
    kafka = Kafka()
    reporter = NodeReporter(kafka, "j")
    reporter.post(node_key("one"), NodeStatus(name="one", role="standby"))
    assert kafka.asked.acquire(timeout=LIMIT_S)
    reporter.post(HAND_OVER_KEY, HandOver(epoch=1))
    for role in ("activating", "active"):
        reporter.post(node_key("one"), NodeStatus(name="one", role=role))
    kafka.reachable.set()
    written: dict[bytes | None, Sent] = {}
    while len(written) < 2:
        assert kafka.arrived.acquire(timeout=LIMIT_S)
        written |= {sent.key: sent for sent in kafka.written}
    assert role_of(written[b"node/one"]) == "active"
    reporter.close(LIMIT_S)


def test_the_end_does_not_wait_for_a_kafka_that_is_away() -> None:
    kafka = Kafka()
    reporter = NodeReporter(kafka, "j")
    reporter.post(node_key("one"), None)
    assert kafka.asked.acquire(timeout=LIMIT_S)
    reporter.close(LIMIT_S)
    assert kafka.written == []
