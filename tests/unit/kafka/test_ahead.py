"""Clients that are connected ahead of their use. The Kafka is simulated, and notes the clients that it made."""

from __future__ import annotations

from collections.abc import Sequence

from journal.activate.connected_clients import AheadClients
from journal.errors import KafkaUnavailableError
from journal.kafka.ports import LOOK_MS, READ_MS, Sent
from journal.topics.names import control_topic, wal_topic, writer_id
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.producers import SimulatedTransactionalProducer
from tests.simulation.readers import SimulatedReader
from tests.simulation.requests import Requests
from tests.simulation.timeline import Timeline

LIMIT_S = 1.0
SHARDS = 2
WAL, CONTROL, WRITER = wal_topic("j"), control_topic("j"), writer_id("j")
KEPT = [Sent(WAL, 0, None, b"kept")]


class Kafka(SimulatedKafka):
    """A simulated Kafka that can be unavailable, and that keeps the clients it made."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        super().__init__(self.broker)
        self.away = False
        self.producers: list[SimulatedTransactionalProducer] = []
        self.readers: list[Reader] = []
        for topic, partitions in ((WAL, SHARDS), (CONTROL, 1)):
            self.broker.create_topic(topic, partitions, 1, {})

    def transactional_producer(self, transactional_id: str) -> SimulatedTransactionalProducer:
        self.producers.append(super().transactional_producer(transactional_id))
        return self.producers[-1]

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> SimulatedReader:
        self.readers.append(Reader(self, topic, committed=committed))
        return self.readers[-1]


class Reader(SimulatedReader):
    """A simulated reader that notes whether it was asked and closed."""

    def __init__(self, kafka: Kafka, topic: str, *, committed: bool) -> None:
        super().__init__(Requests(kafka.broker, "node"), topic, committed=committed, records_per_poll=100)
        self._kafka = kafka
        self.asked = 0
        self.closed = False

    def bounds(self, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        if self._kafka.away:
            raise KafkaUnavailableError("no broker")
        self.asked += 1
        return super().bounds(partitions, timeout_s)

    def close(self) -> None:
        super().close()
        self.closed = True


def clients_of(kafka: Kafka) -> AheadClients:
    return AheadClients(kafka, "j", lambda: range(SHARDS), kafka.broker.timeline.now)


def test_a_client_made_ahead_is_given_out_once() -> None:
    kafka = Kafka()
    clients = clients_of(kafka)
    clients.keep(LIMIT_S)
    assert (len(kafka.producers), len(kafka.readers)) == (1, 4)
    assert clients.transactional_producer(WRITER) is kafka.producers[0]
    assert clients.transactional_producer(WRITER) is not kafka.producers[0]
    reader = clients.reader(WAL, wait_ms=LOOK_MS)
    assert reader in kafka.readers[:4]
    assert clients.reader(WAL, wait_ms=LOOK_MS) not in kafka.readers[:4]


def test_a_producer_that_waits_is_not_initialised() -> None:
    kafka = Kafka()
    active = kafka.transactional_producer(WRITER)
    active.init(LIMIT_S)
    clients = clients_of(kafka)
    for _ in range(3):
        clients.keep(LIMIT_S)
    clients.transactional_producer(WRITER)
    active.send(KEPT, LIMIT_S)
    assert active.commit_transaction(LIMIT_S)


def test_a_client_for_another_purpose_is_made_when_it_is_asked_for() -> None:
    kafka = Kafka()
    clients = clients_of(kafka)
    clients.keep(LIMIT_S)
    assert clients.transactional_producer("another") is not kafka.producers[0]
    assert clients.reader(WAL) not in kafka.readers[:4]
    assert clients.reader("j.table", wait_ms=LOOK_MS) not in kafka.readers[:4]


def test_waiting_clients_keep_their_connections_and_are_made_once() -> None:
    kafka = Kafka()
    clients = clients_of(kafka)
    for _ in range(3):
        clients.keep(LIMIT_S)
    assert (len(kafka.producers), [reader.asked for reader in kafka.readers]) == (1, [3, 3, 3, 3])


def test_a_client_that_no_broker_answers_is_thrown_away() -> None:
    kafka = Kafka()
    clients = clients_of(kafka)
    clients.keep(LIMIT_S)
    kafka.away = True
    clients.keep(LIMIT_S)
    assert all(reader.closed for reader in kafka.readers)
    kafka.away = False
    made = len(kafka.readers)
    clients.keep(LIMIT_S)
    assert clients.reader(WAL, wait_ms=LOOK_MS) in kafka.readers[made:]


def test_taking_a_client_does_not_wait_for_the_making_of_the_next() -> None:
    kafka = Kafka()
    clients = clients_of(kafka)
    clients.keep(LIMIT_S)
    clients.transactional_producer(WRITER)
    assert not clients.lacks_some
    clients.keep(LIMIT_S)
    assert len(kafka.producers) == 1
    kafka.broker.timeline.pass_to(kafka.broker.timeline.now() + 5.0)
    assert clients.lacks_some
    clients.keep(LIMIT_S)
    assert not clients.lacks_some
    assert len(kafka.producers) == 2
    assert clients.transactional_producer(WRITER) is kafka.producers[1]


def test_clients_that_nobody_took_are_closed_and_none_is_kept_afterwards() -> None:
    kafka = Kafka()
    clients = clients_of(kafka)
    clients.keep(LIMIT_S)
    clients.close()
    assert not kafka.producers[0].connect([WAL], LIMIT_S)
    assert all(reader.closed for reader in kafka.readers)
    clients.keep(LIMIT_S)
    assert all(reader.closed for reader in kafka.readers)
