"""A Kafka as the tests of this folder see it, real or simulated, and short words for producers and readers.

The journal relies on what these tests prove, and the simulation stands for real Kafka as far as both pass them. No test
waits for luck: whatever takes time is waited for with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from journal.kafka.ports import Kafka, LogRecord, Reader, Sent, TransactionalProducer
from journal.process.clocks import Clock

LIMIT_S = 30.0
GLANCE_S = 0.3
CROWDED_RECORDS = 1000


@dataclass(frozen=True)
class Environment:
    """A cluster under test."""

    kafka: Kafka
    impatient: Kafka
    """The same cluster, with a transaction time-out of a second."""
    crowded: Kafka
    """The same cluster, for producers that have room for `CROWDED_RECORDS` at a time."""
    topic: Callable[[int, Mapping[str, str]], str]
    """Makes a new topic of so many partitions."""
    name: Callable[[], str]
    """A new name, for a transactional id or a topic."""
    trim: Callable[[str, int, int], None]
    delete_topic: Callable[[str], None]
    clock: Clock

    def producer(self, transactional_id: str | None = None) -> TransactionalProducer:
        """An initialised one."""
        producer = self.kafka.transactional_producer(transactional_id or self.name())
        producer.init(LIMIT_S)
        return producer


def record(topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> Sent:
    return Sent(topic, partition, key, value)


def commit(producer: TransactionalProducer, *records: Sent) -> list[int]:
    offsets = producer.send(records, LIMIT_S)
    producer.commit_transaction(LIMIT_S)
    return offsets


def abort(producer: TransactionalProducer, *records: Sent) -> list[int]:
    offsets = producer.send(records, LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    return offsets


def read(env: Environment, reader: Reader, partition: int = 0) -> list[LogRecord]:
    """What the reader sees up to the log's end as of now: polls until its position is there."""
    deadline = env.clock() + LIMIT_S
    end = reader.start_and_end(partition, LIMIT_S)[1]
    records: list[LogRecord] = []
    while reader.position(partition) < end:
        assert env.clock() < deadline, f"stands at {reader.position(partition)}, end {end}"
        records += reader.poll(GLANCE_S)
    return records


def read_all(env: Environment, topic: str, partition: int = 0, *, committed: bool = True) -> list[LogRecord]:
    reader = env.kafka.reader(topic, committed=committed)
    reader.seek({partition: 0})
    return read(env, reader, partition)


def values(records: list[LogRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def wait_for_end(env: Environment, topic: str, end: int, *, committed: bool = True, partition: int = 0) -> None:
    """Waits until the end is there or beyond: markers are written after a commit has returned."""
    deadline = env.clock() + LIMIT_S
    reader = env.kafka.reader(topic, committed=committed)
    while reader.start_and_end(partition, LIMIT_S)[1] < end:
        assert env.clock() < deadline, f"the end is {reader.start_and_end(partition, LIMIT_S)[1]}, not {end}"
        reader.poll(0.01)
    reader.close()
