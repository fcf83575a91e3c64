"""Spark's fold of a WAL: every golden case, all of them in one fold; and a journal's state as of an earlier time."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.v1.journal_pb2 import Operation, OperationType
from loaders.spark.audit.compare import compared_records, differences_of
from loaders.spark.fold.fold import cut_at, fold, folded_lives, folded_slots
from loaders.spark.fold.frames import put_aside
from loaders.spark.read.source import JournalIdentity
from loaders.spark.session.wire import table_of
from tests.support.build import JOURNAL, START_MS, add, delete, frame, marker, replace, update
from tests.support.golden import Case, Json, cases, expected_outcome
from tests.support.spark.frames import TopicRecord, record_table
from tests.support.spark.golden import case_entries, outcomes

CASES = cases()


def as_it_is(data: bytes) -> bytes:
    return data


@pytest.fixture(scope="module")
def folded(spark: SparkSession) -> dict[tuple[str, int], Json]:
    by_journal: dict[tuple[bytes, int], list[Case]] = {}
    for case in CASES:
        by_journal.setdefault((case.journal, case.shards), []).append(case)
    return outcomes(fold(reduce(DataFrame.union, (case_entries(spark, alike) for alike in by_journal.values()))))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_spark_does_what_the_case_says(case: Case, folded: dict[tuple[str, int], Json]) -> None:
    for shard in range(case.shards):
        expected = case.expected[shard]
        wanted = expected_outcome(case, shard, as_it_is)
        if (case.name, shard) not in folded:
            assert not case.wal[shard]
            assert not wanted["records"]
            continue
        found = folded[case.name, shard]
        assert {name: found[name] for name in wanted} == wanted
        assert found["at_group_end"] == expected["at_group_end"]
        assert found["stops"] == (expected["stops"] and expected["stops"]["offset"])


def test_a_state_as_of_a_time_ends_with_the_last_group_that_was_whole_by_then(spark: SparkSession) -> None:
    """Group 3 has a frame in each shard, of which one came late; what the other has of it does not count either. What
    an operator had skipped ends nothing: a frame of an epoch that never was, and of a group before them all."""

    def entry(shard: int, number: int, group: int, at: int, *operations: Operation) -> TopicRecord:
        value = frame(number, *operations, group=group).SerializeToString()
        return TopicRecord("j.wal", shard, 2 * number, START_MS + at, value)

    records = [
        entry(0, 1, 1, 1, marker()),
        entry(1, 1, 1, 1, marker()),
        entry(0, 2, 2, 2, add(2)),
        entry(0, 3, 3, 3, add(4)),
        entry(1, 2, 3, 5, add(5)),
        entry(0, 4, 4, 4, add(6)),
    ]
    bogus = frame(9, add(8), group=1, epoch=9).SerializeToString()
    records += [TopicRecord("j.wal", shard, 3, START_MS + 9, bogus) for shard in (0, 1)]
    wal = record_table(spark, "entries", records, JournalIdentity(JOURNAL, 2)).withColumn("skip", F.col("offset") == 3)
    at = datetime.fromtimestamp((START_MS + 4) / 1000, UTC)
    state = fold(cut_at(wal, F.lit(at)))
    assert [row["id"] for row in state.records.collect()] == [2]


def test_what_was_replaced_or_refused_is_gone_before_anything_of_an_id_is_gathered(spark: SparkSession) -> None:
    """Record 2 is added, updated, deleted, and all of it again; nothing ever adds record 4."""
    life = [add(2), *(replace(2, b"%d" % n, subject=n % 3) for n in range(30)), update(2, b"plain")]
    again = [*life, delete(2), *life, replace(2, b"last", subject=1)]
    done = put_aside(
        table_of(spark, DONE_SCHEMA, [in_place(at, one) for at, one in enumerate(again + [delete(4)] * 7)])
    )
    slots = folded_slots(done, refused_max=2).collect()
    of_record = [row for row in slots if row["id"] == 2]
    assert sorted(row["slot"]["subject"] for row in of_record if row["slot"] is not None) == [0, 1, 2]
    (rest,) = [row for row in of_record if row["slot"] is None]
    assert [bytes(one["data"]) for one in rest["others"]] == [b"plain"]

    lives = put_aside(folded_lives(done, refused_max=2))
    there, never = lives.orderBy("id").collect()
    assert [bytes(one["data"]) for one in there["updates"]] == [b"27", b"29", b"plain", b"last"]
    assert (there["applied"], there["rejected"], there["deleted"]["offset"]) == (66, 0, len(life))
    assert (never["record"], never["rejected"]) == (None, 7)
    assert [one["position"]["offset"] for one in never["refused"]] == [len(again), len(again) + 1]

    of_record_rows = ", ".join(f"{name} {lives.schema[name].dataType.simpleString()}" for name in ("record", "updates"))
    found = table_of(spark, f"shard int, id bigint, {of_record_rows}, spilled boolean, spilled_rows bigint", [])
    told = differences_of(compared_records(lives.where("id = 4"), found)).orderBy("key").collect()
    assert [(row["what"], row["key"], row["times"]) for row in told] == [
        ("rejected", f"operation {len(again)}:0", 6),
        ("rejected", f"operation {len(again) + 1}:0", 1),
    ]


DONE_SCHEMA = (
    "topic string, shard int, position struct<offset: bigint, index: int, ordinal: int>, id bigint, type string, "
    "kind int, data binary, replaceable boolean, subject bigint, tx bigint"
)


def in_place(offset: int, of: Operation) -> dict[str, Any]:
    """A row of `fold.effective`."""
    position = {"offset": offset, "index": 0, "ordinal": 0}
    told = {name: getattr(of, name) for name in ("id", "kind", "data", "replaceable", "subject", "tx")}
    return {"topic": "j.wal", "shard": 0, "position": position, "type": OperationType.Name(of.type), **told}
