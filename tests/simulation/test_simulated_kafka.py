"""The conformance cases against the simulated Kafka, and what only it can show: its faults, markers and compaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.kafka_conformance import CROWDED_RECORDS, LIMIT_S, Environment
from tests.support.kafka_conformance_writing import CASES


class LateMarkers(Faults):
    def marker_after_s(self, topic: str, partition: int) -> float:
        return 0.05 * (partition + 1)


def environment(faults: Faults, records_per_poll: int) -> Environment:
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


@pytest.mark.parametrize("records_per_poll", [1, 100])
@pytest.mark.parametrize("faults", [Faults(), LateMarkers()], ids=["prompt", "late-markers"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_simulated_kafka_conforms(case: Callable[[Environment], None], faults: Faults, records_per_poll: int) -> None:
    case(environment(faults, records_per_poll))
