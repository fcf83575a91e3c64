"""Queue analytics are what going through the operations one by one gives, in one go and as a stream."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from loaders.spark.analytics import Analytics, analysed
from loaders.spark.follow import Follower
from loaders.spark.source import JournalIdentity
from tests.support.build import JOURNAL
from tests.support.queue_life import SHARDS, Life, Writer, rows
from tests.support.queue_life import Row as Expected
from tests.support.spark_frames import TopicRecord, record_table

pytestmark = pytest.mark.timeout(400)

WIDTH_MS = 2_000
IDENTITY = JournalIdentity(JOURNAL, SHARDS)


def records_of(spark: SparkSession, records: Iterable[TopicRecord]) -> DataFrame:
    return record_table(spark, records).withColumn("skip", F.lit(False))


def nearest_rank(sorted_values: tuple[int, ...], share: float) -> float | None:
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)] / 1000 if sorted_values else None


def check_rows(found: Iterable[Row], expected: Mapping[tuple[int, str], Expected]) -> None:
    """Every number of every window."""
    told = {(round(row["window_start"].timestamp() * 1000), row["queue"]): row for row in found}
    assert told.keys() == expected.keys()
    for key, wanted in expected.items():
        row = told[key]
        for name in wanted._fields[:-1]:
            assert row[name] == getattr(wanted, name), (key, name)
        for name, share in (("p50_s", 0.5), ("p99_s", 0.99)):
            assert row[name] == nearest_rank(wanted.stayed_ms, share), (key, name)


@pytest.fixture(scope="module")
def written() -> list[TopicRecord]:
    return Writer(seed=7).write(600)


def test_every_number_of_every_window_is_what_the_operations_come_to(
    spark: SparkSession, written: list[TopicRecord]
) -> None:
    life = Life(written)
    found = analysed(records_of(spark, written), IDENTITY, "j", WIDTH_MS / 1000)
    check_rows(found.windows.collect(), rows(life, WIDTH_MS))
    check_whole(found, life)


def check_whole(found: Analytics, life: Life) -> None:
    left = tuple(sorted(stay.left - stay.entered for stay in life.stays if stay.left is not None))
    total = found.total
    assert (total.came_in, total.went_out) == (len(life.stays), len(left))
    assert total.depth == len(life.stays) - len(left) == sum(queue.depth for queue in found.queues)
    assert total.redeliveries == sum(len(stay.returns) for stay in life.stays) > 0
    assert (total.p50_s, total.p99_s) == (nearest_rank(left, 0.5), nearest_rank(left, 0.99))
    oldest = min(stay.entered for stay in life.stays if stay.left is None)
    assert total.oldest_age_s == (life.until - oldest) / 1000
    assert sum(found.latencies.values()) == len(left)
    assert [(epoch.epoch, epoch.node) for epoch in found.epochs] == [(1, "node-1"), (2, "node-2")]
    assert [queue.came_in for queue in found.queues] == sorted((queue.came_in for queue in found.queues), reverse=True)


def test_as_a_stream_each_window_is_the_same_and_told_once(
    spark: SparkSession, written: list[TopicRecord], tmp_path: Path
) -> None:
    """In micro-batches that cut transactions and windows apart; the last one runs twice, as after a kill."""
    follower = Follower(spark, IDENTITY, str(tmp_path), 4 * WIDTH_MS, 1_000)
    life = Life(written)
    told: list[Row] = []
    cuts = (0, 300, len(written))
    for number, (begin, end) in enumerate(pairwise(cuts)):
        over_now = follower.windows(records_of(spark, written[begin:end]), number)
        told += over_now.collect() if over_now is not None else []
    again = follower.windows(records_of(spark, written[cuts[-2] :]), len(cuts) - 2)
    assert again is not None
    assert sorted(again.collect()) == sorted(told[-again.count() :])
    over = (life.until - 1_000) // (4 * WIDTH_MS) * 4 * WIDTH_MS
    expected = {key: row for key, row in rows(life, 4 * WIDTH_MS).items() if key[0] < over}
    check_rows(told, expected)
    assert len(told) == len(expected)
