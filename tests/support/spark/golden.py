"""Golden cases as one DataFrame, and what Spark's fold made of them in `tests.support.golden`'s form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.v1.journal_pb2 import OperationType
from loaders.spark.fold.fold import State, is_one_of
from loaders.spark.read.source import JournalIdentity
from tests.support.golden import MARK_FIELDS, Case, Json
from tests.support.spark.frames import TopicRecord, record_table


def case_entries(spark: SparkSession, cases: Iterable[Case]) -> DataFrame:
    """What `fold` takes, of cases of one journal; the topic is the case's name. Kafka gives an offset once, so what
    comes again is left out."""
    records: list[TopicRecord] = []
    skips: list[Column] = []
    for case in cases:
        journal = JournalIdentity(case.journal, case.shards)
        for shard, entries in case.wal.items():
            highest = -1
            for entry in entries:
                if entry.offset > highest:
                    highest = entry.offset
                    records.append(TopicRecord(case.name, shard, entry.offset, entry.timestamp_ms, entry.value))
                    if entry.skip:
                        skips.append((F.col("topic") == case.name) & is_one_of([(shard, entry.offset)]))
    skip = reduce(Column.__or__, skips, F.lit(False))
    table = record_table(spark, "entries", records, journal)
    return table.withColumn("skip", skip).withColumn("until", F.lit(None).cast("bigint"))


def outcomes(state: State) -> dict[tuple[str, int], Json]:
    """By case and shard: `mark`, `records`, `transactions` as expected, and the rest of the row of `marks`."""
    found: dict[tuple[str, int], Json] = {}
    for row in state.marks.collect():
        found[row["topic"], row["shard"]] = {
            "mark": _mark(row),
            "records": {},
            "transactions": {},
            "at_group_end": row["whole_group"],
            "stops": row["stop_offset"],
            "reason": row["stop_reason"],
        }
    for row in state.records.collect():
        found[row["topic"], row["shard"]]["records"][row["id"]] = {
            "kind": row["kind"],
            "data": bytes(row["data"]),
            "position": tuple(row["position"]),
            "updates": [
                (one["kind"], bytes(one["data"]), one["subject"], one["replaceable"], tuple(one["position"]))
                for one in row["updates"]
            ],
        }
    for row in state.transactions.collect():
        found[row["topic"], row["shard"]]["transactions"][row["tx"]] = {
            "epoch": row["epoch"],
            "prepared": row["prepared"],
            "data": bytes(row["data"] or b""),
            "shards": row["shards"],
            "timestamp": _ms(row["prepared_at"]),
            "bytes": row["bytes"],
            "operations": list(_staged(row["operations"])),
        }
    return found


def _mark(row: Row) -> Json:
    timestamp = _ms(row["timestamp"]) if row["offset"] >= 0 else 0
    return {name: row[name] for name in MARK_FIELDS} | {"timestamp": timestamp, "nonce": bytes(row["nonce"]).hex()}


def _staged(operations: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    for one in operations:
        yield (
            OperationType.Value(one["type"]),
            one["id"],
            one["kind"],
            bytes(one["data"]),
            one["replaceable"],
            one["subject"],
            tuple(one["position"]),
        )


def _ms(at: datetime | None) -> int:
    return 0 if at is None else round(at.timestamp() * 1000)
