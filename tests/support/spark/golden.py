"""Golden cases as one DataFrame, and what Spark's fold made of them in `tests.support.golden`'s form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from journal.v1.journal_pb2 import OperationType
from loaders.spark.fold.fold import State
from tests.support.golden import MARK_FIELDS, Case, Json

_SCHEMA = "topic string, partition int, offset bigint, timestamp timestamp, value binary, skip boolean, until bigint"


def case_records(spark: SparkSession, cases: Iterable[Case]) -> DataFrame:
    """What `fold` takes; the topic is the case's name. Kafka gives an offset once, so what comes again is left out."""
    rows: list[tuple[Any, ...]] = []
    for case in cases:
        for shard, entries in case.wal.items():
            highest = -1
            for entry in entries:
                if entry.offset > highest:
                    highest = entry.offset
                    at = datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC)
                    rows.append((case.name, shard, entry.offset, at, entry.value, entry.skip, None))
    return spark.createDataFrame(rows, _SCHEMA)


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
