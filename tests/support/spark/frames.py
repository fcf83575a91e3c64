"""WAL and table records as DataFrames, as Spark's Kafka source would give them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from loaders.spark.read.frames import with_operations
from loaders.spark.read.source import JournalIdentity

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


class TopicRecord(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None = None


def record_table(spark: SparkSession, records: Iterable[TopicRecord]) -> DataFrame:
    """What `loaders.spark.read.rows` takes."""
    rows = [
        (
            record.key,
            record.value,
            record.topic,
            record.partition,
            record.offset,
            datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
        )
        for record in records
    ]
    # once, and not again for every look at it
    return spark.createDataFrame(rows, SCHEMA).localCheckpoint()


def wal_table(spark: SparkSession, records: Iterable[TopicRecord], journal: JournalIdentity) -> DataFrame:
    """What `loaders.spark.read.frames` takes."""
    return with_operations(record_table(spark, records), journal)
