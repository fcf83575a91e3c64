"""Rows of the table topic that Spark already holds, as the data source's tables `changes` and `rows` have them, become
a state: the newest row of each key, without deleted ones.

Compaction is lazy, so a topic may hold many rows of one key. The state is the fold of the WAL up to each shard's mark,
because a worker writes rows and then the mark in one Kafka transaction, and only whole transactions are read
(docs/FORMAT.md).

Hot path: a state takes one shuffle: all rows of a record are brought together once.
"""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loaders.spark.read.row_decoding import MOMENTS_END_MS, OWNER_BYTES
from loaders.spark.session.wire import computed_once, parsed

_SHARD_FIRST = ("MARK", "SKIPPED")
"""Rows whose keys begin with their shard."""

_XID_PART_BYTES_MAX = 64
_FORMAT_ID_MAX = 2**31 - 1


def newest(rows: DataFrame) -> DataFrame:
    """The newest row of each key, without deletions; `owner` is the part of a key that all rows of a record share."""
    with_owner = rows.withColumn("owner", F.expr(f"substring(key, 1, {OWNER_BYTES})"))
    together = with_owner.repartition("shard", "owner")
    backwards = Window.partitionBy("shard", "owner", "key").orderBy(F.col("offset").desc())
    numbered = together.withColumn("versions", F.row_number().over(backwards))
    return numbered.where((F.col("versions") == 1) & ~F.col("deleted")).drop("versions")


def records(state: DataFrame) -> DataFrame:
    """The records of a state (`newest`) with their updates in order."""
    of_records = state.where(F.col("row").isin("RECORD", "UPDATES", "UPDATE"))
    single = F.struct("position", "kind", "data", "replaceable", "subject")
    here = F.when(F.col("row") == "UPDATES", F.col("updates")).when(F.col("row") == "UPDATE", F.array(single))
    of_record = F.struct("id", "kind", "data", "position", "offset", "written")
    together = of_records.groupBy("shard", "owner").agg(
        F.first(F.when(F.col("row") == "RECORD", of_record), ignorenulls=True).alias("record"),
        F.array_sort(F.flatten(F.collect_list(here))).alias("updates"),
    )
    record = F.col("record")
    return together.where(record.isNotNull()).select(
        "shard",
        *(record[name].alias(name) for name in ("id", "kind", "data", "position")),
        "updates",
        *(record[name].alias(name) for name in ("offset", "written")),
    )


def transactions(state: DataFrame) -> DataFrame:
    """The transactions of a state that are not settled, one row each: docs/SPARK.md has the columns."""
    part = F.col("transaction")
    parts = state.where(F.col("row") == "TRANSACTION").groupBy("tx")
    whole = parts.agg(
        F.max(part["prepared"]).alias("prepared"),
        F.min(part["epoch"]).alias("epoch"),
        F.sum(part["staged"]).alias("operations"),
        F.sum(part["bytes"]).alias("bytes"),
        F.array_sort(F.collect_set("shard")).alias("shards"),
        F.max(part["shards"]).alias("shards_prepared"),
        F.min(part["prepared_at"]).alias("prepared_at"),
        F.first(part["data"], ignorenulls=True).alias("data"),
    )
    decoded = computed_once(whole, parsed("data", "Xid"), "as_xid")
    return decoded.select("*", _xid(F.col("as_xid")).alias("xid")).drop("as_xid")


# ---- one row -----------------------------------------------------------------------------------------------


def shard_of_key() -> Column:
    """The shard that a row's key names; null for the keys that name none."""
    row = F.col("row")
    return F.when(row.isin(*_SHARD_FIRST), _number(2, 2)).when(row.isin("TRANSACTION", "STAGED"), _number(10, 2))


def _number(start: int, size: int) -> Column:
    """A big-endian number in the key."""
    return F.conv(F.hex(F.expr(f"substring(key, {start}, {size})")), 16, 10).try_cast("bigint")


def moment(ms: Column) -> Column:
    """The time for milliseconds since 1970; null if there is no time, or if it is `MOMENTS_END_MS` or later."""
    known = F.when((ms > 0) & (ms < MOMENTS_END_MS), ms)
    return F.timestamp_seconds(known.cast("decimal(20, 0)") * F.lit(Decimal("0.001")))


def _xid(of: Column) -> Column:
    """The xid that a PREPARE carried; null if its data is not an xid, because somebody prepared without XA."""
    told = F.struct(
        F.coalesce(of["format_id"], F.lit(0)).alias("format_id"),
        of["gtrid"].alias("gtrid"),
        F.coalesce(of["bqual"], F.lit(b"")).alias("bqual"),
    )
    good = F.length(told["gtrid"]).between(1, _XID_PART_BYTES_MAX) & (F.length(told["bqual"]) <= _XID_PART_BYTES_MAX)
    return F.when(good & told["format_id"].between(0, _FORMAT_ID_MAX), told)
