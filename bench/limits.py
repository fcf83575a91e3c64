"""The limits: what a competent user would write without the journal, with settings at least as good as the journal's.

Each limit leaves out the journal's promises, and does whatever makes it faster:

produce       confluent-kafka's producer sends one record for each operation, acknowledged by all replicas, with long
              batches, lz4 and one delivery callback for all records. It packs no operations together.
aio           confluent-kafka's AIOProducer batches the records of many tasks, with the fastest batch size and time-out.
transactions  One producer commits single-record transactions without lingering. At 1,000 a second it is always behind,
              so only the time of each transaction itself is measured, without the wait for the one before it.
fold          One loop consumes, parses, writes one WriteBatch a frame, and produces its rows in one call without
              callbacks. It checks nothing, reads no row, writes no mark and commits nothing, so it cannot go on after a
              kill.
iterate       rocksdict iterates over the same files, with keys and values as bytes.
consume       consume() reads 5,000 records at a time, with keys and values as bytes, and keeps nothing.
gate          One client commits a transaction on P partitions; another one reads it committed and answers with a
              transaction on P partitions. Both readers wait in a poll and know no epochs, frames, marks or rows.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.aio import AIOProducer
from confluent_kafka.cimpl import NewTopic
from rocksdict import Options, Rdict, WriteBatch

from bench.plain_frames import operations_in
from bench.scene import RUN_TIMEOUT_S, TIMEOUT_S
from bench.workload import produce_patiently
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE

PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "compression.type": "lz4",
    "socket.nagle.disable": True,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
}
TRANSACTIONAL = {**PRODUCER, "linger.ms": 0}
CONSUMER = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
    "fetch.max.bytes": 64 * 1024 * 1024,
    "queued.max.messages.kbytes": 256 * 1024,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
    "enable.partition.eof": True,
}
CONSUME_RECORDS = 5000

_POLL_EVERY = 1000
_AIO_BATCH = 1000
_AIO_BUFFER_S = 0.005


def new_topic(bootstrap: str, partitions: int, **config: str) -> str:
    """Creates a topic, and waits until its leaders are known."""
    name = f"bench-limit-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(TIMEOUT_S)
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return name
        time.sleep(0.02)
    raise TimeoutError(f"topic {name} has no leaders after {TIMEOUT_S:.0f} s")


# ---- append ----------------------------------------------------------------------------------------------------------


class SingleRecords:
    """A producer of one record an operation, which stays connected between rounds as the journal does."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._topic = new_topic(bootstrap, partitions)
        self._partitions = partitions
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
        self._delivered = 0

    def run(self, data: Sequence[bytes], operations: int) -> float:
        """Returns operations a second, from the first call to the last acknowledgement."""
        producer, topic, partitions, report = self._producer, self._topic, self._partitions, self._report
        self._delivered = 0
        size = len(data)
        began = time.perf_counter()
        for number in range(operations):
            producer.produce(topic, data[number % size], partition=number % partitions, on_delivery=report)
            if number % _POLL_EVERY == 0:
                producer.poll(0)
        producer.flush(TIMEOUT_S)
        took = time.perf_counter() - began
        if self._delivered != operations:
            raise TimeoutError(f"{self._delivered} of {operations} records were acknowledged")
        return operations / took

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self._delivered += 1


async def aio_rate(bootstrap: str, topic: str, data: Sequence[bytes], tasks: int, each: int) -> float:
    """Returns operations a second of many tasks; each awaits the acknowledgement of a record before the next."""
    config = {"bootstrap.servers": bootstrap, **PRODUCER, "linger.ms": 0}
    producer = AIOProducer(config, batch_size=_AIO_BATCH, buffer_timeout=_AIO_BUFFER_S)
    size = len(data)

    async def task(first: int) -> None:
        for number in range(first, first + each):
            report = await (await producer.produce(topic, value=data[number % size], partition=0))
            if report.error() is not None:
                raise KafkaException(report.error())

    try:
        await task(0)
        began = time.perf_counter()
        await asyncio.gather(*(task(number * each) for number in range(tasks)))
        return tasks * each / (time.perf_counter() - began)
    finally:
        await producer.close()


def new_transactional(bootstrap: str) -> Producer:
    config = {"bootstrap.servers": bootstrap, **TRANSACTIONAL, "transactional.id": f"bench-{uuid.uuid4().hex}"}
    producer = Producer(config)
    producer.init_transactions(TIMEOUT_S)
    return producer


def transaction_seconds(
    producer: Producer, topic: str, data: Sequence[bytes], rate: int, seconds: float
) -> list[float]:
    """Returns the seconds of each single-record transaction, at `rate` a second."""
    took: list[float] = []
    began = time.perf_counter()
    number = 0
    while (at := time.perf_counter()) - began < seconds:
        due = began + number / rate
        if due > at:
            time.sleep(due - at)
            at = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, data[number % len(data)], partition=0)
        producer.commit_transaction(TIMEOUT_S)
        took.append(time.perf_counter() - at)
        number += 1
    return took


# ---- process ---------------------------------------------------------------------------------------------------------


def fold_seconds(bootstrap: str, wal: str, shards: int, table: str) -> float:
    """Returns the seconds from the first poll of the WAL to the last row's acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    producer.list_topics(table, timeout=TIMEOUT_S)
    consumer, ends = _assigned(bootstrap, wal, shards)
    with tempfile.TemporaryDirectory() as directory:
        database = Rdict(directory, Options(raw_mode=True))
        began = time.perf_counter()

        def take(message: Message) -> None:
            _fold_frame(message, database, producer, table)

        _consume_to(consumer, ends, 100, take)
        producer.flush(RUN_TIMEOUT_S)
        took = time.perf_counter() - began
        database.close()
    consumer.close()
    return took


def _fold_frame(message: Message, database: Rdict, producer: Producer, table: str) -> None:
    batch = WriteBatch(raw_mode=True)
    put, delete = batch.put, batch.delete
    rows: list[dict[str, bytes | None]] = []
    place = (message.offset() or 0).to_bytes(8, "big")
    for index, (type_, record_id, kind, data) in enumerate(operations_in(message.value() or b"")):
        key = record_id.to_bytes(8, "big")
        if type_ in (ADD, UPDATE):
            if type_ == UPDATE:
                key += place + index.to_bytes(4, "big")
            value = bytes((type_, kind)) + data
            put(key, value)
            rows.append({"key": key, "value": value})
        elif type_ == DELETE:
            delete(key)
            rows.append({"key": key, "value": None})
    database.write(batch)
    if rows:
        produce_patiently(producer, lambda: _produce_rows(producer, table, message.partition() or 0, rows))
        producer.poll(0)


def _produce_rows(producer: Producer, table: str, partition: int, rows: list[dict[str, bytes | None]]) -> None:
    if producer.produce_batch(table, rows, partition) != len(rows):
        raise RuntimeError("the producer's queue is too small for this bench")


def _assigned(bootstrap: str, topic: str, partitions: int) -> tuple[Consumer, dict[int, int]]:
    """Returns a consumer at the beginning of every partition, and the partitions' ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, **CONSUMER})
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    ends: dict[int, int] = {}
    for place in places:
        _, ends[place.partition] = consumer.get_watermark_offsets(place, TIMEOUT_S, cached=False)
    consumer.assign(places)
    return consumer, {partition: end for partition, end in ends.items() if end > 0}


def _consume_to(consumer: Consumer, ends: dict[int, int], records: int, take: Callable[[Message], None]) -> None:
    """Gives every record to `take`, up to each partition's end."""
    left = set(ends)
    while left:
        for message in consumer.consume(records, 0.1):
            error = message.error()
            if error is None:
                take(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= ends.get(message.partition() or 0, 0):
                    left.discard(message.partition() or 0)
            else:
                raise KafkaException(error)


# ---- load ------------------------------------------------------------------------------------------------------------


def iterate(database: Rdict) -> tuple[int, float]:
    """Returns the number of rows, and the seconds that the iteration took."""
    rows = 0
    began = time.perf_counter()
    for _key, _value in database.items():
        rows += 1
    return rows, time.perf_counter() - began


def consume(bootstrap: str, topic: str, partitions: int) -> tuple[int, float]:
    """Returns the number of rows, and the seconds from the consumer's creation to the end of every partition."""
    rows = 0

    def take(message: Message) -> None:
        nonlocal rows
        message.key()
        message.value()
        rows += 1

    began = time.perf_counter()
    consumer, ends = _assigned(bootstrap, topic, partitions)
    _consume_to(consumer, ends, CONSUME_RECORDS, take)
    took = time.perf_counter() - began
    consumer.close()
    return rows, took


# ---- activate --------------------------------------------------------------------------------------------------------


class GateTimes(NamedTuple):
    """How long a round trip of `BareGate` took, until the last answer was read."""

    path_s: float
    """Seconds from the beginning of the first transaction until the last answer was read."""
    gate_s: float
    """Seconds from the commit of the first transaction until the last answer was read."""


class BareGate:
    """A round trip of bare Kafka clients: a transaction writes to P partitions, and its committed records are read;
    then a second transaction answers in the same way."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._partitions = partitions
        self._topics = (new_topic(bootstrap, partitions), new_topic(bootstrap, partitions))
        self._producers = (new_transactional(bootstrap), new_transactional(bootstrap))
        self._readers = tuple(self._reader(bootstrap, topic) for topic in self._topics)

    def _reader(self, bootstrap: str, topic: str) -> Consumer:
        consumer, _ = _assigned(bootstrap, topic, self._partitions)
        consumer.poll(1.0)
        return consumer

    def run(self) -> GateTimes:
        began = time.perf_counter()
        self._transact(0)
        committed = time.perf_counter()
        self._receive(0)
        self._transact(1)
        self._receive(1)
        ended = time.perf_counter()
        return GateTimes(ended - began, ended - committed)

    def _transact(self, which: int) -> None:
        producer = self._producers[which]
        producer.begin_transaction()
        for partition in range(self._partitions):
            producer.produce(self._topics[which], b"marker", partition=partition)
        producer.commit_transaction(TIMEOUT_S)

    def _receive(self, which: int) -> None:
        left = set(range(self._partitions))
        while left:
            message = self._readers[which].poll(TIMEOUT_S)
            if message is None:
                raise TimeoutError("nothing came back")
            if message.error() is None:
                left.discard(message.partition() or 0)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
