"""The messages and the transactions in doubt that the table topic shows, for one batch of its rows at a time.

A row counts only after its shard's next mark has been seen; until then the row is pending. So the tables hold, for each
shard, the state of a complete checkpoint.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from journal.v1.store_pb2 import RecordKind
from loaders.spark.read import rows
from loaders.spark.read.schemas import table_schema
from loaders.spark.tables.store_columns import messages

ROW_KEYS = ("shard", "key")
PENDING_KEYS = ("shard", "offset")
MESSAGE_KEYS = ("shard", "message", "queue_id")
IN_DOUBT_KEYS = ("tx",)

_OF_A_RECORD = ("RECORD", "UPDATES", "UPDATE")
_OF_A_TRANSACTION = ("TRANSACTION", "STAGED")
_OWNER = "substring(key, 1, 9)"


class Checkpoints(NamedTuple):
    """Rows of the data source's table `changes`."""

    newest: DataFrame
    """The newest row of each key, deletions too, up to each shard's last mark."""
    pending: DataFrame
    """The rows after each shard's last mark."""


def checkpoints(records: DataFrame, pending: DataFrame | None) -> Checkpoints:
    """The rows of `records`, which have the columns of the table `rows`, and the rows that were pending."""
    found = records.where(F.col("fault").isNull()).select(*table_schema("changes").names)
    if pending is not None:
        # a batch that is applied again may find its own rows among the pending ones
        found = found.unionByName(pending).dropDuplicates(list(PENDING_KEYS))
    of_shard = Window.partitionBy("shard")
    until = F.max(F.when(F.col("row") == "MARK", F.col("offset"))).over(of_shard)
    judged = found.withColumn("until", F.coalesce(until, F.lit(-1))).localCheckpoint()
    counted = F.col("offset") <= F.col("until")
    backwards = Window.partitionBy(*ROW_KEYS).orderBy(F.col("offset").desc())
    numbered = judged.where(counted).withColumn("versions", F.row_number().over(backwards))
    newest = numbered.where("versions = 1").drop("versions", "until")
    return Checkpoints(newest.localCheckpoint(), judged.where(~counted).drop("until").localCheckpoint())


def touched_messages(newest: DataFrame, stored: DataFrame | None) -> DataFrame:
    """The messages (shard, message) that a batch concerns, including those of queues that it destroys."""
    touched = newest.where(F.col("row").isin(*_OF_A_RECORD)).select("shard", F.col("id").alias("message"))
    if stored is not None:
        ended = newest.where("row = 'RECORD' and deleted").select("shard", F.col("id").alias("queue_id"))
        touched = touched.unionByName(stored.join(ended, ["shard", "queue_id"], "left_semi").select("shard", "message"))
    return touched.distinct()


def live_messages(state: DataFrame, touched: DataFrame) -> DataFrame:
    """The messages among `touched` that wait in queues, with the columns of
    `loaders.spark.tables.store_columns.messages`."""
    ids = touched.select("shard", F.col("message").alias("id"))
    queues = (F.col("row") == "RECORD") & (F.col("kind") == RecordKind.QUEUE)
    wanted = state.where(queues).unionByName(state.where(~queues).join(ids, ["shard", "id"], "left_semi"))
    return messages(rows.records(wanted.withColumn("owner", F.expr(_OWNER))))


def touched_transactions(newest: DataFrame) -> DataFrame:
    return newest.where(F.col("row").isin(*_OF_A_TRANSACTION)).select("tx").distinct()


def in_doubt(state: DataFrame, touched: DataFrame) -> DataFrame:
    """The transactions among `touched` that are prepared; docs/SPARK.md has the columns."""
    return rows.transactions(state.join(touched, ["tx"], "left_semi")).where("prepared").drop("prepared")
