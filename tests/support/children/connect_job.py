"""Reads a journal through Spark Connect, as batches and as streams. A process that has a Spark of its own cannot do
this, because PySpark's functions ask the environment whether they are for Connect.

Arguments: URL BROKERS JOURNAL; on standard output one line of JSON.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession

from journal.errors import ConfigError
from loaders import (
    JournalSource,
    KafkaJournal,
    journal_errors,
    messages,
    read_archive,
    read_table,
    read_wal,
)


def main(url: str, bootstrap: str, journal: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.dataSource.register(KafkaJournal)
    place, source = {"bootstrap_servers": bootstrap, "journal": journal}, JournalSource(bootstrap, journal)
    batches, streams = spark.read.format("kafka_journal"), spark.readStream.format("kafka_journal")
    operations = batches.options(**place, table="operations").load()
    records = batches.options(**place, table="records").load()
    with journal_errors():
        read, table = read_wal(spark, source), read_table(spark, source)
    found: dict[str, object] = {
        "operations": rows(operations, "shard", "offset", "index"),
        "streamed operations": rows(
            streamed(streams.options(**place, table="operations", max_offsets="100").load()), "shard", "offset", "index"
        ),
        "operations of read_wal": rows(read.operations, "shard", "offset", "index"),
        "records": rows(records.selectExpr("id", "kind", "hex(data) as data"), "id", "kind", "data"),
        "streamed changes": rows(
            streamed(streams.options(**place, table="changes").load()).where("row = 'RECORD' and not deleted"), "id"
        ),
        "messages": rows(messages(table.records), "message"),
    }
    try:
        read_archive(spark, "/nowhere")
    except ConfigError as error:
        found["refused"] = str(error)
    print(json.dumps(found))


def rows(table: DataFrame, *columns: str) -> list[list[object]]:
    return [list(row) for row in table.select(*columns).collect()]


def streamed(table: DataFrame) -> DataFrame:
    """The rows that a query over a stream has given, once it has read all that is there."""
    name = f"streamed_{id(table)}"
    query = table.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return table.sparkSession.table(name)
