"""How a node gets its producer: what a dead writer left open costs it a moment, not librdkafka's half second."""

from __future__ import annotations

import pytest

from journal.errors import OperatingError
from journal.kafka.ports import Sent
from journal.process.clocks import Timing
from journal.topics.names import wal_topic, writer_id
from journal.wal.fencing import FIRST_TRIES_S, Fence
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import INIT_AGAIN_S
from tests.simulation.timeline import Timeline

LIMIT_S = 5.0
WAL = wal_topic("j")


class Scene:
    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.broker.create_topic(WAL, 1, 1, {})
        self.kafka = SimulatedKafka(self.broker)
        self.now = self.broker.timeline.now
        timing = Timing(self.now, self._pause, LIMIT_S, LIMIT_S, LIMIT_S)
        self.fence = Fence(self.kafka, "j", timing)

    def _pause(self, seconds: float) -> None:
        self.broker.timeline.wait(seconds, lambda: False)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_dead_writers_open_transaction_is_not_waited_for_longer_than_it_takes(scene: Scene) -> None:
    dead = scene.kafka.transactional_producer(writer_id("j"))
    dead.init(LIMIT_S)
    dead.send([Sent(WAL, 0, None, b"left open")], LIMIT_S)
    began = scene.now()
    producer = scene.fence.initialise(began + LIMIT_S)
    assert scene.now() - began < INIT_AGAIN_S
    producer.send([Sent(WAL, 0, None, b"mine")], LIMIT_S)
    assert producer.commit_transaction(LIMIT_S)
    reader = scene.kafka.reader(WAL)
    reader.seek({0: 0})
    assert [record.value for record in reader.poll(LIMIT_S)] == [b"mine"]
    with pytest.raises(OperatingError):
        dead.commit_transaction(LIMIT_S)


def test_the_first_tries_are_short_and_grow() -> None:
    assert list(FIRST_TRIES_S) == sorted(FIRST_TRIES_S)
    assert sum(FIRST_TRIES_S) < INIT_AGAIN_S
