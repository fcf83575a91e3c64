"""The frames of the WAL that count in the lives of messages are found batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import SparkSession

from journal.v1.journal_pb2 import Frame
from loaders.spark.fold.fold import is_one_of
from loaders.spark.tables.lives import wal_batch
from tests.support.build import START_MS, add, frame, marker
from tests.support.spark.frames import TopicRecord, record_table

Counted = list[tuple[int, int, bool]]


def counted(spark: SparkSession, skipped: Sequence[int], *batches: Sequence[Frame]) -> list[Counted]:
    """(offset, operations, whether it is a gap) of each frame that counts, of batches of one shard from offset 0 on."""
    found, carried, offset = list[Counted](), None, 0
    for batch in batches:
        values = [
            TopicRecord("j.wal", 0, offset + index, START_MS, each.SerializeToString())
            for index, each in enumerate(batch)
        ]
        offset += len(batch)
        entries = record_table(spark, "entries", values).withColumn("skip", is_one_of((0, each) for each in skipped))
        told = wal_batch(entries, carried, "j.wal")
        carried = told.carried.localCheckpoint()
        done = Counter(row["offset"] for row in told.operations.select("position.offset").collect())
        rows = told.frames.orderBy("offset").collect()
        found.append([(row["offset"], done[row["offset"]], row["gap"]) for row in rows])
    return found


def test_a_frame_that_operators_had_skipped_keeps_no_later_one_out(spark: SparkSession) -> None:
    """A skipped frame with a number or an epoch that was never there moves nothing; one with the next number moves only
    the number. The same holds from batch to batch."""
    begun = [frame(1, marker()), frame(2, add(1 << 10))]
    wrong = [frame(1000, add(2 << 10)), frame(3, add(3 << 10), epoch=9)]
    behind = [frame(4, add(4 << 10)), frame(5, add(5 << 10))]
    expected = [(0, 0, False), (1, 1, False), (4, 1, False), (5, 1, False)]
    assert counted(spark, [2, 3], [*begun, *wrong, *behind]) == [expected]
    assert counted(spark, [2, 3], begun, wrong, behind) == [expected[:2], [], expected[2:]]
