"""Frames as Spark sees them: what an operation has, and what is no frame apart, with the reason."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from journal.errors import FrameError
from journal.wire.frames import decode_frame
from loaders.spark.read.frames import dead_letters, frames, operations
from loaders.spark.read.source import JournalIdentity
from loaders.spark.session.wire import table_of
from tests.support.build import add, commit, delete, frame, marker, prepare, replace
from tests.support.golden import Case, cases
from tests.support.spark.frames import TopicRecord, record_table

pytestmark = pytest.mark.timeout(900, func_only=True)


def rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.orderBy("offset", *({"index"} & set(table.columns))).collect()]


def one(value: bytes | None) -> TopicRecord:
    return TopicRecord("t.wal", 0, 7, 1_700_000_000_123, value)


def test_an_operation_has_its_place_and_what_concerns_it(spark: SparkSession) -> None:
    made = frame(3, add(1024, b"a", kind=4), replace(1024, b"u", subject=9, tx=5), delete(1024), prepare(5, 1, b"xid"))
    table = operations(record_table(spark, "entries", [one(made.SerializeToString())]))
    first, *others = rows(table)
    appended = first.pop("appended")
    assert appended.astimezone(UTC).timestamp() == 1_700_000_000.123
    place = {"shard": 0, "offset": 7, "epoch": 1, "node": "node-1", "group": 3, "number": 3}
    nothing = dict.fromkeys(("id", "kind", "data", "replaceable", "subject", "tx", "covers", "shards"))
    assert first == place | nothing | {"index": 0, "type": "ADD", "id": 1024, "kind": 4, "data": b"a"}
    told = [{key: value for key, value in row.items() if key not in place and value is not None} for row in others]
    for row in told:
        del row["appended"]
    assert told == [
        {"index": 1, "type": "UPDATE", "id": 1024, "kind": 2, "data": b"u", "replaceable": True, "subject": 9, "tx": 5},
        {"index": 2, "type": "DELETE", "id": 1024},
        {"index": 3, "type": "PREPARE", "data": b"xid", "tx": 5, "covers": 1, "shards": 1},
    ]


def test_rows_that_the_driver_knows_are_a_table_without_python(spark: SparkSession) -> None:
    told: list[dict[str, Any]] = [
        {"key": b"\x00\xff", "many": [2**62, 1], "flag": None, "name": '`"\u00e9'},
        {"key": b"", "many": [], "flag": True},
    ]
    table = table_of(spark, "key binary, many array<bigint>, flag boolean, name string", told)
    assert [(bytes(row["key"]), row["many"], row["flag"], row["name"]) for row in table.collect()] == [
        (b"\x00\xff", [2**62, 1], None, '`"\u00e9'),
        (b"", [], True, None),
    ]
    assert table_of(spark, "`group` bigint", []).collect() == []


NO_FRAMES: list[tuple[bytes | None, str]] = [
    (None, "an empty record is not a frame"),
    (b"", "an empty record is not a frame"),
    (b"\xff\xff", "not a frame: it does not parse"),
    (b"\x10\x01", "not a frame: magic 0"),
    (b"\x0d\x01\x00\x00\x00", "not a frame: magic 1"),
    (frame(2, marker(), add(1024)).SerializeToString(), "operation 0: an epoch marker in a frame of 2 operations"),
    (frame(2, commit(0)).SerializeToString(), "operation 0: tx 0 is not positive"),
    (frame(2, delete(1024), add(-3)).SerializeToString(), "operation 1: id -3 is not positive"),
]


def test_what_is_no_frame_is_kept_with_its_place_and_the_reason(spark: SparkSession) -> None:
    heartbeat = TopicRecord("t.wal", 0, len(NO_FRAMES), 1, frame(2).SerializeToString())
    records = [TopicRecord("t.wal", 0, offset, 1, value) for offset, (value, _) in enumerate(NO_FRAMES)]
    table = record_table(spark, "entries", [*records, heartbeat])
    assert rows(operations(table)) == []
    assert [(row["offset"], row["count"]) for row in rows(frames(table))] == [(heartbeat.offset, 0)]
    letters = rows(dead_letters(table))
    assert [(letter["value"], letter["reason"]) for letter in letters] == NO_FRAMES
    places = [(letter["topic"], letter["partition"], letter["offset"]) for letter in letters]
    assert places == [record[:3] for record in records]


def is_frame(case: Case, shard: int, value: bytes) -> bool:
    try:
        decode_frame(value, case.journal, shard, case.shards)
    except FrameError:
        return False
    return True


def test_golden_cases_have_the_dead_letters_that_a_worker_stops_at(spark: SparkSession) -> None:
    """All cases of a journal at once, each with its own topic: Spark is asked a few times, not eighty."""
    by_journal: dict[JournalIdentity, list[Case]] = {}
    for case in cases():
        by_journal.setdefault(JournalIdentity(case.journal, case.shards), []).append(case)
    bad_ones = 0
    for journal, of_journal in by_journal.items():
        values = {
            (case.name, shard, entry.offset): (case, entry.value, entry.timestamp_ms)
            for case in of_journal
            for shard, entries in case.wal.items()
            for entry in entries
        }
        records = [TopicRecord(*place, timestamp_ms, value) for place, (_, value, timestamp_ms) in values.items()]
        found = (
            dead_letters(record_table(spark, "entries", records, journal))
            .select("topic", "partition", "offset")
            .collect()
        )
        bad = {place for place, (case, value, _) in values.items() if not is_frame(case, place[1], value)}
        assert {tuple(row) for row in found} == bad
        bad_ones += len(bad)
    assert bad_ones >= 10
