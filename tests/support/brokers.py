"""How tests run Kafka and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.embedded.cluster import EmbeddedKafka
from journal.errors import EmbeddedKafkaError

JVM_OPTIONS = ("-XX:TieredStopAtLevel=1",)
"""A broker, or a Spark, is started with half of the work: in tests they start often, and never run for long."""

SHARED_KAFKA = "shared_kafka"
"""What a test process is told by the one that started it: where the broker is that they all use."""

_TRIES = 4
"""How often a start is tried, as a machine may be too busy for one."""


def shared_kafka(config: pytest.Config) -> Path | None:
    """The directory of the one broker of several test processes, running or not."""
    told = getattr(config, "workerinput", {}).get(SHARED_KAFKA)
    return None if told is None else Path(told)


def crash(kafka: EmbeddedKafka, *brokers: int) -> None:
    """Kill brokers, the only one unless they are named, and start them again."""
    try:
        for broker in brokers or (1,):
            kafka.kill(broker)
    finally:
        for last in range(1, _TRIES + 1):
            try:
                kafka.start()
            except EmbeddedKafkaError:
                if last == _TRIES:
                    raise
            else:
                break
