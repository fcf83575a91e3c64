"""Records for a topic that exists, sent by the driver: few come from Spark's jobs, and no client of the journal's makes
a topic."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from journal.kafka.ports import Sent
from loaders.spark.read.source import JournalSource

_TIMEOUT_S = 60.0
_AT_ONCE = 10_000
"""Records that are sent before the next ones are taken."""


def send(records: Iterable[Sent], source: JournalSource) -> None:
    """Send records to the source's Kafka, acknowledged by all replicas. Raises TopicError for a topic that does not
    exist, KafkaUnavailableError, KafkaRefusedError."""
    producer = source.kafka().plain_producer()
    left = iter(records)
    try:
        while some := list(islice(left, _AT_ONCE)):
            producer.send(some, _TIMEOUT_S)
    finally:
        producer.close()
