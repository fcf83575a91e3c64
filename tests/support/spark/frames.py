"""Records of a topic in tables of the data source `kafka_journal`, as it makes them, without a Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from loaders.spark.read.row_batches import row_batch
from loaders.spark.read.schemas import ROW_TABLES, arrow_schema, table_schema
from loaders.spark.read.source import JournalIdentity
from loaders.spark.read.topic_records import TopicRecords
from loaders.spark.read.wal_batches import WalBatches
from tests.support.build import JOURNAL


class TopicRecord(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None = None


def record_table(
    spark: SparkSession, table: str, records: Iterable[TopicRecord], journal: JournalIdentity | None = None
) -> DataFrame:
    """Records in a table of the WAL or of the table topic; the journal has one shard if none is given."""
    schema = table_schema(table)
    wal = WalBatches(table, arrow_schema(schema), journal or JournalIdentity(JOURNAL, 1))

    def rows(columns: TopicRecords) -> pa.RecordBatch:
        return row_batch(table, columns, arrow_schema(schema)) if table in ROW_TABLES else wal.rows(columns)

    batches = [rows(_as_columns(topic, list(of))) for topic, of in groupby(records, lambda record: record.topic)]
    # once, and not again for every look at it
    return spark.createDataFrame(pa.Table.from_batches(batches, arrow_schema(schema)), schema).localCheckpoint()


def _as_columns(topic: str, records: list[TopicRecord]) -> TopicRecords:
    _, shards, offsets, times, values, keys = zip(*records, strict=True)
    return TopicRecords(topic, np.array(shards), np.array(offsets), np.array(times), keys, values)
