"""The tests of this folder run against real Kafka and against four kinds of the simulated one."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from journal.kafka.clients import KafkaClients
from tests.integration.conformance.environment import CROWDED_RECORDS, LIMIT_S, Environment
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline


class LateMarkers(Faults):
    def marker_after_s(self, topic: str, partition: int) -> float:
        return 0.05 * (partition + 1)


SIMULATED = {
    f"simulated, {name} markers, {polled} a poll": (faults, polled)
    for name, faults in (("prompt", Faults()), ("late", LateMarkers()))
    for polled in (1, 100)
}


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.kafka), *SIMULATED])
def env(request: pytest.FixtureRequest) -> Environment:
    if request.param == "kafka":
        real: Environment = request.getfixturevalue("real")
        return real
    return simulated(*SIMULATED[request.param])


@pytest.fixture(scope="session")
def real(bootstrap: str) -> Environment:
    kafka = KafkaClients(bootstrap)
    cluster, admin = kafka.cluster(), AdminClient({"bootstrap.servers": bootstrap})

    def name() -> str:
        return f"conformance-{uuid.uuid4()}"

    def topic(partitions: int, config: Mapping[str, str]) -> str:
        new = name()
        cluster.create(new, partitions, 1, config, LIMIT_S)
        return new

    def trim(topic: str, partition: int, start: int) -> None:
        for future in admin.delete_records([TopicPartition(topic, partition, start)]).values():
            future.result(LIMIT_S)

    def delete_topic(topic: str) -> None:
        admin.delete_topics([topic])[topic].result(LIMIT_S)

    return Environment(
        kafka=kafka,
        impatient=KafkaClients(bootstrap, transaction_timeout_ms=1000),
        crowded=KafkaClients(bootstrap, {"queue.buffering.max.messages": str(CROWDED_RECORDS)}),
        topic=topic,
        name=name,
        trim=trim,
        delete_topic=delete_topic,
        clock=time.monotonic,
    )


def simulated(faults: Faults, records_per_poll: int) -> Environment:
    broker = SimulatedBroker(Timeline(), faults)
    kafka = SimulatedKafka(broker, records_per_poll=records_per_poll)
    numbers = itertools.count()

    def name() -> str:
        return f"name-{next(numbers)}"

    def topic(partitions: int, config: Mapping[str, str]) -> str:
        new = name()
        kafka.cluster().create(new, partitions, 1, config, LIMIT_S)
        return new

    def trim(topic: str, partition: int, start: int) -> None:
        log = broker.log(topic, partition)
        assert log is not None
        log.trim(start)

    return Environment(
        kafka=kafka,
        impatient=SimulatedKafka(broker, transaction_timeout_s=1.0),
        crowded=SimulatedKafka(broker, records_per_poll=records_per_poll, records_per_produce=CROWDED_RECORDS),
        topic=topic,
        name=name,
        trim=trim,
        delete_topic=broker.delete_topic,
        clock=broker.timeline.now,
    )
