"""A simulated cluster with leaders that were deposed and still answer, and partitions that lost what they had."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy, deepcopy

from journal.kafka.ports import READ_MS
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.partition import PartitionLog
from tests.simulation.readers import SimulatedReader


class DeposedKafka(SimulatedKafka):
    """`ports.Kafka`. What is written goes to the leaders; readers of a topic may be answered by deposed ones."""

    def __init__(self, broker: SimulatedBroker, node: str = "node") -> None:
        super().__init__(broker, node)
        self._broker = broker
        self._node = node
        self._deposed: dict[str, SimulatedKafka] = {}
        self.reads_left: dict[str, int] = {}
        """By topic, after how many more readers its deposed leader is gone."""

    def depose(self, topic: str, reads: int = 1_000_000, partitions: Collection[int] | None = None) -> None:
        """From now on that many readers of a topic see what it, or these partitions, have now, and nothing of later."""
        frozen, there = copy(self._broker), self._broker.topics[topic]
        frozen.topics = {topic: deepcopy(there)}
        for partition, log in enumerate(there.logs):
            if partitions is not None and partition not in partitions:
                frozen.topics[topic].logs[partition] = log
        self._deposed[topic] = SimulatedKafka(frozen, self._node)
        self.reads_left[topic] = reads

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> SimulatedReader:
        left = self.reads_left.get(topic, 0)
        if not left:
            return super().reader(topic, committed=committed, wait_ms=wait_ms)
        self.reads_left[topic] = left - 1
        return self._deposed[topic].reader(topic, committed=committed, wait_ms=wait_ms)


def write_anew(
    broker: SimulatedBroker, topic: str, rows: list[tuple[bytes | None, bytes | None]], partition: int = 0
) -> None:
    """A partition that has lost all it had but for these rows."""
    broker.topics[topic].logs[partition] = PartitionLog(broker.topics[topic].version)
    broker.write(topic, partition, rows)
