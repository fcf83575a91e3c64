"""Figures, latencies and topics: what the baseline measurements share."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, with a value for each round."""

    what: str
    unit: str
    rounds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Returns the difference of the largest and the smallest round, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / self.median if self.median else 0.0


@dataclass(slots=True)
class Latencies:
    """Latencies of one quantity, by round."""

    current: list[float] = field(default_factory=list)
    rounds: list[list[float]] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.current.append(seconds * 1000)

    def end_round(self) -> None:
        self.rounds.append(sorted(self.current))
        self.current = []

    def figures(self, what: str, *, slow_ms: float) -> list[Figure]:
        def quantile(share: float) -> list[float]:
            return [values[min(len(values) - 1, int(len(values) * share))] for values in self.rounds]

        slow = [100 * sum(value >= slow_ms for value in values) / len(values) for values in self.rounds]
        return [
            Figure(what, "p50_ms", quantile(0.5)),
            Figure(what, "p99_ms", quantile(0.99)),
            Figure(what, "mean_ms", [statistics.fmean(values) for values in self.rounds]),
            Figure(what, f"over_{slow_ms:g}_ms_percent", slow),
        ]


def check(error: object) -> None:
    """Raises the error of a delivery report, if it has one."""
    if isinstance(error, KafkaError):
        raise KafkaException(error)


def new_topic(bootstrap: str, partitions: int, **config: str) -> str:
    """Creates a topic for one measurement, so that none reads another's log."""
    name = f"baseline-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 1, config={"max.message.bytes": "8000000", **config})
    admin.create_topics([topic])[name].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    # The broker does not know a new topic at once, and a producer would ask again only a second later.
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return name
        time.sleep(0.02)
    raise TimeoutError(f"topic {name} has no leaders after {TIMEOUT_S:.0f} s")
