"""Measures producers, RocksDB and protobuf alone: the parts that every path is made of."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable

from confluent_kafka import Message
from confluent_kafka.aio import AIOProducer
from rocksdict import Options, Rdict, WriteBatch

from bench.baseline_support import Figure, check, new_topic
from bench.baseline_transactions import DATA_BYTES, PRODUCER_PROPERTIES, TIMEOUT_S, new_producer
from bench.plain_frames import frame_of_adds, operations_in

FRAME_OPERATIONS = 500
AIO_TASKS = 2000


def measure_producing(bootstrap: str, operations: int, rounds: int) -> list[Figure]:
    """Produces operations as single records, and in frames of 500, with a delivery callback for each record."""
    singles = new_topic(bootstrap, 1)
    frames = new_topic(bootstrap, 1)
    # Single records get the setting of a competent user: a batch may grow for 5 ms.
    properties: dict[str, int | bool] = {
        "enable.idempotence": True,
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": operations + 1,
    }
    return [
        Figure(
            "confluent-kafka, one record an operation",
            "operations_per_s",
            _rounds(rounds, operations, lambda: _produce(bootstrap, singles, operations, DATA_BYTES, properties)),
        ),
        Figure(
            "confluent-kafka, frames of 500 operations",
            "operations_per_s",
            _rounds(
                rounds,
                operations,
                lambda: _produce(
                    bootstrap, frames, operations // FRAME_OPERATIONS, FRAME_OPERATIONS * DATA_BYTES, properties
                ),
            ),
        ),
    ]


def _rounds(rounds: int, operations: int, run: Callable[[], float]) -> list[float]:
    run()
    return [operations / run() for _ in range(rounds)]


def _produce(bootstrap: str, topic: str, records: int, size: int, properties: dict[str, int | bool]) -> float:
    producer = new_producer(bootstrap, **properties)
    producer.list_topics(topic, timeout=TIMEOUT_S)
    value = bytes(size)
    delivered = 0

    def on_delivery(error: object, message: Message) -> None:
        nonlocal delivered
        check(error)
        delivered += 1

    began = time.perf_counter()
    for number in range(records):
        producer.produce(topic, value, partition=0, on_delivery=on_delivery)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(TIMEOUT_S)
    took = time.perf_counter() - began
    if delivered != records:
        raise TimeoutError(f"{delivered} of {records} records were acknowledged")
    return took


def measure_aio(bootstrap: str, operations: int, rounds: int) -> Figure:
    """Sends with confluent-kafka's AIOProducer; each send is awaited by one of 2,000 tasks."""
    topic = new_topic(bootstrap, 1)
    rates = _rounds(rounds, operations, lambda: asyncio.run(_produce_aio(bootstrap, topic, operations)))
    return Figure(f"AIOProducer, awaited by {AIO_TASKS} tasks", "operations_per_s", rates)


async def _produce_aio(bootstrap: str, topic: str, operations: int) -> float:
    settings = {"bootstrap.servers": bootstrap, **PRODUCER_PROPERTIES, "enable.idempotence": True}
    del settings["transaction.timeout.ms"]
    producer = AIOProducer(settings, batch_size=1000, buffer_timeout=0.005)
    value = bytes(DATA_BYTES)

    async def task() -> None:
        for _ in range(operations // AIO_TASKS):
            report = await (await producer.produce(topic, value=value, partition=0))
            check(report.error())

    began = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(AIO_TASKS)))
    took = time.perf_counter() - began
    await producer.close()
    return took


def measure_rocksdict(rows: int, rounds: int) -> list[Figure]:
    """Measures rocksdict in raw mode, in microseconds a row: put in batches of 500, get, iterate over all rows."""
    puts, gets, iterations = [], [], []
    keys = [(number * 2654435761 % 2**32).to_bytes(8, "big") for number in range(rows)]
    value = bytes(DATA_BYTES)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            database = Rdict(directory, Options(raw_mode=True))
            began = time.perf_counter()
            for start in range(0, rows, FRAME_OPERATIONS):
                batch = WriteBatch(raw_mode=True)
                for key in keys[start : start + FRAME_OPERATIONS]:
                    batch.put(key, value)
                database.write(batch)
            puts.append(_microseconds(began, rows))
            began = time.perf_counter()
            for key in keys:
                database[key]
            gets.append(_microseconds(began, rows))
            began = time.perf_counter()
            for _key, _value in database.items():
                pass
            iterations.append(_microseconds(began, rows))
            database.close()
    return [
        Figure("rocksdict raw mode, WriteBatch put (batches of 500)", "us_per_row", puts),
        Figure("rocksdict raw mode, get", "us_per_row", gets),
        Figure("rocksdict raw mode, iterate", "us_per_row", iterations),
    ]


def measure_protobuf(frames: int, rounds: int) -> list[Figure]:
    """Builds and serialises a frame of 500 adds; parses it and reads four fields of each operation."""
    builds, parses = [], []
    data = bytes(DATA_BYTES)
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(frames):
            raw = frame_of_adds(range(FRAME_OPERATIONS), data)
        builds.append(_microseconds(began, frames * FRAME_OPERATIONS))
        began = time.perf_counter()
        for _ in range(frames):
            for operation in operations_in(raw):
                _ = operation
        parses.append(_microseconds(began, frames * FRAME_OPERATIONS))
    return [
        Figure("protobuf, build and serialise a frame of 500", "us_per_operation", builds),
        Figure("protobuf, parse a frame of 500 and read four fields", "us_per_operation", parses),
    ]


def _microseconds(began: float, count: int) -> float:
    return (time.perf_counter() - began) / count * 1e6
