"""A journal's topics, read with plain clients at the end of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from journal.v1.journal_pb2 import Identity
from tests.chaos.checker import Evidence
from tests.chaos.tables import table_state

READ_TIMEOUT_S = 60.0
SETTLE_TIMEOUT_S = 120.0

T = TypeVar("T")


def settled_evidence(bootstrap: str, journal: str) -> Evidence:
    """Everything that is committed, once the workers have brought the tables to the WAL's end."""
    control = read_topic(bootstrap, f"{journal}.control", lambda message: (message.key(), message.value()))[0]
    identity = Identity.FromString(next(value for key, value in control if key == b"journal" and value))
    wal = read_topic(bootstrap, f"{journal}.wal", lambda message: (message.offset() or 0, message.value()))
    until = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        table = read_topic(bootstrap, f"{journal}.table", lambda message: (message.key() or b"", message.value()))
        stand = [table_state(rows)[1].offset for rows in table]
        behind = [shard for shard, frames in enumerate(wal) if frames and stand[shard] < frames[-1][0]]
        if not behind:
            return Evidence(identity.journal, wal, table)
        assert time.monotonic() < until, f"the tables of shards {behind} do not reach the WAL's end: {stand}"
        time.sleep(0.5)


def read_topic(bootstrap: str, topic: str, take: Callable[[Message], T]) -> list[list[T]]:
    """The committed records of each partition, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "evidence",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        rows: list[list[T]] = [[] for _ in partitions]
        unread = set(partitions)
        until = time.monotonic() + READ_TIMEOUT_S
        while unread:
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, f"{topic} could not be read to its end"
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is None:
                rows[partition].append(take(message))
                until = time.monotonic() + READ_TIMEOUT_S
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(partition)
            else:
                assert time.monotonic() < until, error
        return rows
    finally:
        consumer.close()
