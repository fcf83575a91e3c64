"""`ports.Kafka` on a simulated cluster: what one node of the journal holds.

SimulatedKafka -> producers, readers     the ports, with librdkafka's behaviour
               -> requests -> faults     what happens to each request
               -> broker -> partition    the cluster
               -> timeline               time, and the place where nodes take turns
"""

from __future__ import annotations

from journal.kafka.ports import READ_MS
from tests.simulation.broker import SimulatedBroker
from tests.simulation.producers import SimulatedPlainProducer, SimulatedTransactionalProducer
from tests.simulation.readers import SimulatedCluster, SimulatedReader
from tests.simulation.requests import Requests


class SimulatedKafka:
    """`ports.Kafka`. `node` is the name that faults know it by."""

    def __init__(
        self,
        broker: SimulatedBroker,
        node: str = "node",
        *,
        transaction_timeout_s: float = 10.0,
        records_per_poll: int = 100,
        records_per_produce: int = 1_000_000,
    ) -> None:
        """`records_per_produce` is how many records of a partition go into one Produce request of a transaction."""
        self._requests = Requests(broker, node)
        self._transaction_timeout_s = transaction_timeout_s
        self._records_per_poll = records_per_poll
        self._records_per_produce = records_per_produce

    def transactional_producer(self, transactional_id: str) -> SimulatedTransactionalProducer:
        return SimulatedTransactionalProducer(
            self._requests,
            transactional_id,
            self._transaction_timeout_s,
            records_per_produce=self._records_per_produce,
        )

    def plain_producer(self) -> SimulatedPlainProducer:
        return SimulatedPlainProducer(self._requests)

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> SimulatedReader:
        return SimulatedReader(self._requests, topic, committed=committed, records_per_poll=self._records_per_poll)

    def cluster(self) -> SimulatedCluster:
        return SimulatedCluster(self._requests)
