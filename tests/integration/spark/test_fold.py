"""Spark's fold of a WAL: every golden case, all of them in one fold; and a journal's state as of an earlier time."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.v1.journal_pb2 import Operation
from loaders.spark.fold import cut_at, fold
from loaders.spark.fold_frames import flattened, put_aside
from loaders.spark.source import JournalIdentity
from loaders.spark.wire import with_frame
from tests.support.build import JOURNAL, START_MS, add, frame, marker
from tests.support.golden import Case, Json, cases, expected_outcome
from tests.support.spark_frames import TopicRecord, record_table
from tests.support.spark_golden import case_records, outcomes

CASES = cases()


def as_it_is(data: bytes) -> bytes:
    return data


@pytest.fixture(scope="module")
def folded(spark: SparkSession) -> dict[tuple[str, int], Json]:
    frames = put_aside(with_frame(case_records(spark, CASES)))
    kinds = sorted({(case.journal, case.shards) for case in CASES})
    return outcomes(fold(reduce(DataFrame.union, (flattened_cases(frames, *kind) for kind in kinds))))


def flattened_cases(frames: DataFrame, uuid: bytes, shards: int) -> DataFrame:
    alike = [case.name for case in CASES if (case.journal, case.shards) == (uuid, shards)]
    return flattened(frames.where(F.col("topic").isin(alike)), JournalIdentity(uuid, shards))


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
    """Group 3 has a frame in each shard, of which one came late; what the other has of it does not count either."""

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
    wal = record_table(spark, records).withColumn("skip", F.lit(False))
    journal = JournalIdentity(JOURNAL, 2)
    at = datetime.fromtimestamp((START_MS + 4) / 1000, UTC)
    state = fold(flattened(with_frame(cut_at(wal, journal, F.lit(at))), journal))
    assert [row["id"] for row in state.records.collect()] == [2]
