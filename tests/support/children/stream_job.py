"""A streaming query over a WAL, written to Parquet files, that is killed between two of its micro-batches.

Arguments: BROKERS JOURNAL PATH JARS. Files are in PATH/rows, the checkpoint is in PATH/checkpoint.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from loaders.spark.read.readers import stream_wal
from loaders.spark.read.source import JournalSource
from tests.support.spark.jobs import begin, die, die_with_parent, job_session

BATCH_OFFSETS = 5
BATCHES = 2


def written(operations: DataFrame, path: str, *, once: bool) -> StreamingQuery:
    """A query that writes operations below `path`; with `once`, to the end as of now."""
    writer = operations.writeStream.format("parquet").option("checkpointLocation", f"{path}/checkpoint")
    writer = writer.trigger(availableNow=True) if once else writer
    return writer.start(f"{path}/rows")


def streamed(spark: SparkSession, bootstrap: str, journal: str) -> DataFrame:
    return stream_wal(spark, JournalSource(bootstrap, journal), max_offsets=BATCH_OFFSETS).operations


def main(bootstrap: str, journal: str, path: str, jars: str) -> None:
    spark = job_session("stream", jars, f"{path}-warehouse")
    begin(die_with_parent)
    query = written(streamed(spark, bootstrap, journal), path, once=False)
    while query.exception() is None:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= BATCHES:
            die()
        time.sleep(0.01)
    raise SystemExit(str(query.exception()))
