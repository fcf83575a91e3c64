"""WAL records become operations, one row each. Records that are no frames become dead letters, with the reason.

The rules are those of docs/FORMAT.md; `decoding` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from loaders.spark.read.decoding import HEAD, pieces
from loaders.spark.read.schemas import arrow_schema, table_schema
from loaders.spark.read.source import JournalIdentity
from loaders.spark.read.topic_records import TopicRecords
from loaders.spark.read.wal_batches import WalBatches

_OF_A_RECORD = ("ADD", "UPDATE", "DELETE")
_OF_A_TRANSACTION = ("PREPARE", "COMMIT", "ROLLBACK")


def with_operations(records: DataFrame, topic: str, journal: JournalIdentity) -> DataFrame:
    """The table `entries` of records in the archive's columns, which are those of the WAL `topic`."""
    schema = table_schema("entries")
    read = records.select("shard", "offset", "appended", "key", "value")
    return read.mapInArrow(partial(_entries, topic, WalBatches("entries", arrow_schema(schema), journal)), schema)


def _entries(topic: str, wal: WalBatches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for piece in pieces(batch):
            times = piece["appended"].cast(pa.int64()).to_numpy() // 1000
            bytes_ = (piece[name].to_pylist() for name in ("key", "value"))
            yield wal.rows(TopicRecords(topic, piece["shard"].to_numpy(), piece["offset"].to_numpy(), times, *bytes_))


def frames(read: DataFrame) -> DataFrame:
    """One row for each frame in the table `entries`, heartbeats too, in no order; docs/SPARK.md has the
    columns. The result has `skip` if it was read."""
    further = [column for column in ("skip",) if column in read.columns]
    firsts = read.where(F.col("fault").isNull() & (F.coalesce("index", F.lit(0)) == 0))
    return firsts.select("shard", "offset", F.col("timestamp").alias("appended"), *HEAD, *further)


def operations(read: DataFrame) -> DataFrame:
    """One row for each operation in the table `entries`, in no order; docs/SPARK.md has the columns."""
    kind = F.col("type")
    has_kind = kind.isin("ADD", "UPDATE")
    return read.where(F.col("index").isNotNull()).select(
        "shard",
        "offset",
        "index",
        F.col("timestamp").alias("appended"),
        "epoch",
        "node",
        "group",
        "number",
        "type",
        _if(kind.isin(*_OF_A_RECORD), "id"),
        _if(has_kind, "kind"),
        _if(has_kind | kind.isin("PREPARE", "MARKER"), "data"),
        _if(kind == "UPDATE", "replaceable"),
        _if(kind == "UPDATE", "subject"),
        _if(F.col("tx") != 0, "tx"),
        _if(kind.isin(*_OF_A_TRANSACTION), "covers"),
        _if(kind == "PREPARE", "shards"),
    )


def dead_letters(read: DataFrame) -> DataFrame:
    """The records in the table `entries` that are no frames of this journal; docs/SPARK.md has the columns."""
    shard, reason = F.col("shard").alias("partition"), F.col("fault").alias("reason")
    bad = read.where(F.col("fault").isNotNull())
    return bad.select("topic", shard, "offset", "timestamp", "key", "value", reason)


def _if(concerns: Column, name: str) -> Column:
    return F.when(concerns, F.col(name)).alias(name)
