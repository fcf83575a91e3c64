"""Measures Kafka transactions of confluent-kafka: sizes, partitions, pauses, one producer or two in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message, Producer

from bench.baseline_support import Figure, Latencies, check, new_topic

DATA_BYTES = 200
PRODUCER_PROPERTIES: dict[str, str | int | bool] = {
    "acks": "all",
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "compression.type": "none",
    "message.max.bytes": 8_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "transaction.timeout.ms": 10_000,
}
TIMEOUT_S = 30.0
WAITED_MS = 15.0  # librdkafka waits 20 ms after CONCURRENT_TRANSACTIONS; nothing else takes so long here.


def new_producer(bootstrap: str, **properties: str | int | bool) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, **PRODUCER_PROPERTIES, **properties})


def new_transactional(bootstrap: str, name: str, **properties: str | int | bool) -> Producer:
    producer = new_producer(bootstrap, **{"transactional.id": name, **properties})
    producer.init_transactions(TIMEOUT_S)
    return producer


def transact(producer: Producer, topic: str, partitions: int, value: bytes) -> None:
    """Writes one group: a frame to each partition, in one transaction."""
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    producer.commit_transaction(TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The way in which groups follow each other: their size, partitions, pause and number of producers."""

    partitions: int
    operations: int
    pause_ms: float = 0.0
    producers: int = 1

    @property
    def label(self) -> str:
        pace = "two ids in turn" if self.producers == 2 else f"pause {self.pause_ms:g} ms"
        return f"transactions of {self.operations} ops on {self.partitions} partition(s), {pace}"


def measure_pattern(bootstrap: str, pattern: Pattern, transactions: int, rounds: int) -> list[Figure]:
    """Measures the latency of each transaction (from its begin until its commit returns) and the rate of groups, pauses
    included."""
    topic = new_topic(bootstrap, pattern.partitions)
    value = bytes(max(1, pattern.operations // pattern.partitions) * DATA_BYTES)
    producers = [new_transactional(bootstrap, f"{topic}-{number}") for number in range(pattern.producers)]
    for number in range(50):
        transact(producers[number % len(producers)], topic, pattern.partitions, value)
    latencies = Latencies()
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        for number in range(transactions):
            at = time.perf_counter()
            transact(producers[number % len(producers)], topic, pattern.partitions, value)
            latencies.add(time.perf_counter() - at)
            if pattern.pause_ms:
                time.sleep(pattern.pause_ms / 1000)
        rates.append(transactions / (time.perf_counter() - began))
        latencies.end_round()
    return [
        *latencies.figures(pattern.label, slow_ms=WAITED_MS),
        Figure(pattern.label, "groups_per_s", rates),
        Figure(pattern.label, "operations_per_s", [rate * pattern.operations for rate in rates]),
    ]


def measure_sends(bootstrap: str, operations: int, sends: int, rounds: int) -> list[Figure]:
    """Sends frames one by one and waits for each acknowledgement, without transactions."""
    topic = new_topic(bootstrap, 1)
    producer = new_producer(bootstrap, **{"enable.idempotence": True})
    value = bytes(operations * DATA_BYTES)
    label = f"plain acknowledged send of {operations} ops"
    latencies = Latencies()
    done: list[int] = []

    def delivered(error: object, message: Message) -> None:
        check(error)
        done.append(1)

    def send() -> None:
        done.clear()
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        while not done:
            producer.poll(TIMEOUT_S)

    for _ in range(50):
        send()
    for _ in range(rounds):
        for _ in range(sends):
            at = time.perf_counter()
            send()
            latencies.add(time.perf_counter() - at)
        latencies.end_round()
    return latencies.figures(label, slow_ms=WAITED_MS)


def patterns(operations: Sequence[int], pauses_ms: Sequence[float]) -> list[Pattern]:
    """Returns the patterns to measure, each on one partition and on eight: all sizes, 100 operations with each pause,
    and all sizes with two producers in turn."""
    made = [Pattern(partitions, size) for partitions in (1, 8) for size in operations]
    made += [Pattern(partitions, 100, pause) for partitions in (1, 8) for pause in pauses_ms]
    made += [Pattern(partitions, size, producers=2) for partitions in (1, 8) for size in operations]
    return made
