"""A topic's committed records, read with a plain client of Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

READ_TIMEOUT_S = 60.0

T = TypeVar("T")


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
