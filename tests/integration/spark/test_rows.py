"""Rows as Spark sees them: of every golden case the state that it says, from rows with an older one before each."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from journal.v1.journal_pb2 import Transaction
from journal.v1.store_pb2 import Xid
from journal.wire.keys import transaction_key
from loaders.spark.read import rows
from loaders.spark.session.wire import table_of
from loaders.spark.tables import live_tables
from tests.support.fold import fold_entries, never
from tests.support.golden import Json, cases, expected_outcome
from tests.support.spark.frames import TopicRecord, record_table

pytestmark = pytest.mark.timeout(900, func_only=True)

MARK_FIELDS = ("offset", "number", "group", "epoch", "node", "issued", "records", "staged", "prepared", "applied")
NAMES_KEPT = 1000
"""Shards of a case in the one table of all cases: `shard` there is the case's number x 1000 and its own."""


def table_records() -> tuple[list[TopicRecord], dict[int, Json]]:
    """All cases' rows in one topic, a partition a case and shard; and what the cases say, by partition."""
    records, expected = [], {}
    for number, case in enumerate(cases()):
        for shard in range(case.shards):
            partition = number * NAMES_KEPT + shard
            folded = fold_entries(
                case.wal[shard],
                case.journal,
                shard,
                case.shards,
                updates_row_bytes_max=case.updates_row_bytes_max,
                checkpoint=never,
                restart=False,
            )
            expected[partition] = expected_outcome(case, shard, bytes)
            versions = [value for key, value in folded.rows.items() for value in (b"", value)]
            keys = [key for key in folded.rows for _ in range(2)]
            gone = b"r" + (2**62).to_bytes(8, "big")
            for offset, (key, value) in enumerate([*zip(keys, versions, strict=True), (gone, b"x"), (gone, None)]):
                records.append(TopicRecord("t.table", partition, offset, 1, value, key))
    return records, expected


def test_what_a_prepare_carried_is_an_xid_or_none(spark: SparkSession) -> None:
    """The same among the journal tables as for readers."""
    carried = [Xid(format_id=1, gtrid=b"g" * size).SerializeToString() for size in (64, 65)]
    parts = [Transaction(tx=tx, prepared=True, data=data, timestamp=1) for tx, data in enumerate(carried, 1)]
    made = [
        TopicRecord("t.table", 0, part.tx, 1, part.SerializeToString(), transaction_key(part.tx, 0)) for part in parts
    ]
    state = record_table(spark, "changes", made)
    kept = live_tables.in_doubt(state, state.select("tx"))
    assert {row["tx"]: row["xid"] is not None for row in kept.collect()} == {1: True, 2: False}
    assert kept.columns == rows.transactions(state).drop("prepared").columns


def test_a_time_that_no_timestamp_holds_is_null_in_every_zone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's "never" may be any number; and the driver's zone is fourteen hours ahead of UTC."""
    year_10000 = 253_402_300_800_000
    known = [1, rows.MOMENTS_END_MS - 1]
    beyond = [rows.MOMENTS_END_MS, year_10000 - 1, year_10000, 2**63 // 1000, 2**63 - 1]
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        told = [{"ms": ms} for ms in (*known, *beyond, 0, -1)]
        found = table_of(spark, "ms bigint", told).select("ms", rows.moment(F.col("ms")).alias("at")).collect()
        shown = [row["at"] for row in found if row["at"] is not None]
        assert shown == [datetime.fromtimestamp(ms // 1000).replace(microsecond=ms % 1000 * 1000) for ms in known]
        assert [row["ms"] for row in found if row["at"] is None] == [*beyond, 0, -1]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_golden_cases_have_the_records_updates_and_marks_that_they_say(spark: SparkSession) -> None:
    made, expected = table_records()
    state = rows.newest(record_table(spark, "rows", made)).cache()
    found: dict[int, Json] = {partition: {} for partition in expected}
    for row in rows.records(state).collect():
        found[row["shard"]][row["id"]] = {
            "kind": row["kind"],
            "data": bytes(row["data"]),
            "position": tuple(row["position"]),
            "updates": [
                (each["kind"], bytes(each["data"]), each["subject"], each["replaceable"], tuple(each["position"]))
                for each in row["updates"]
            ],
        }
    assert found == {partition: outcome["records"] for partition, outcome in expected.items()}
    of_marks = state.where("row = 'MARK'").select("shard", "mark.*")
    marks = {row["shard"]: tuple(row[name] for name in MARK_FIELDS) for row in of_marks.collect()}
    assert marks == {
        partition: tuple(outcome["mark"][name] for name in MARK_FIELDS)
        for partition, outcome in expected.items()
        if partition in marks
    }
    assert len(marks) > 50
    skipped = state.where("row = 'SKIPPED'").select("skipped.*").collect()
    assert len(skipped) >= 3
    assert all(row["reason"] and row["operator"] for row in skipped)
    assert state.where("fault is not null").count() == 0
    state.unpersist()
