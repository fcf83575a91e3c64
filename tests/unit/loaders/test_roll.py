"""Who is in the nodes' group, as the roll has it. The Kafka is the simulated one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from journal.errors import KafkaUnavailableError
from journal.kafka.ports import GroupMember
from loaders.node.members import Roll
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.readers import SimulatedCluster
from tests.simulation.requests import Requests
from tests.simulation.timeline import Timeline

DEADLINE_S = 30.0
GROUP = "kafka-journal.j.node"


class Kafka(SimulatedKafka):
    """One that can be away."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        super().__init__(self.broker)
        self.away = False

    def cluster(self) -> SimulatedCluster:
        return Cluster(self)

    def members(self, *names: str) -> None:
        self.broker.groups[GROUP] = [GroupMember(f"{name}-1", name, "host", ()) for name in names]


class Cluster(SimulatedCluster):
    def __init__(self, kafka: Kafka) -> None:
        super().__init__(Requests(kafka.broker, "node"))
        self._kafka = kafka

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        if self._kafka.away:
            raise KafkaUnavailableError("no broker")
        return super().group_members(group, timeout_s)


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def roll(kafka: Kafka) -> Iterator[Roll]:
    called = Roll(kafka, GROUP)
    yield called
    called.close()


def test_a_roll_names_the_members_of_now_and_knows_those_of_before(kafka: Kafka, roll: Roll) -> None:
    kafka.members("one", "two")
    roll.call(DEADLINE_S)
    assert roll.members == {"one", "two"}
    kafka.members("two")
    roll.call(DEADLINE_S)
    assert roll.members == {"two"}
    assert [name for name in ("one", "two", "three") if roll.has_left(name)] == ["one"]
    kafka.members("one", "two")
    roll.call(DEADLINE_S)
    assert not roll.has_left("one")


def test_while_kafka_does_not_answer_nobody_is_known_to_be_there_or_gone(kafka: Kafka, roll: Roll) -> None:
    kafka.members("one", "two")
    roll.call(DEADLINE_S)
    kafka.members("two")
    kafka.away = True
    roll.call(DEADLINE_S)
    assert roll.members is None
    assert not roll.has_left("one")
    kafka.away = False
    roll.call(DEADLINE_S)
    assert roll.members == {"two"}
    assert roll.has_left("one")


def test_a_group_that_does_not_exist_has_no_members(roll: Roll) -> None:
    roll.call(DEADLINE_S)
    assert roll.members == frozenset()
