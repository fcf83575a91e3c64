"""An archive of a journal that never was: frames at times of one's choice, without a Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from journal.v1.journal_pb2 import Frame
from loaders.spark.stored.archive_frames import ParquetFrames
from loaders.spark.stored.manifest import Manifest, ManifestLog, ShardPart
from tests.support.build import JOURNAL
from tests.support.spark.frames import TopicRecord, record_table

PLANTED = "planted"


def plant_archive(
    spark: SparkSession, path: str, frames: Sequence[tuple[int, Frame]], *, number: int = 1, start: int = 0
) -> None:
    """A batch of one shard: (ms since 1970, frame) in order, at offsets from `start` on."""
    records = [
        TopicRecord(f"{PLANTED}.wal", 0, offset, at_ms, frame.SerializeToString())
        for offset, (at_ms, frame) in enumerate(frames, start)
    ]
    archive = ParquetFrames(spark, path, PLANTED, JOURNAL)
    batch = archive.new_batch(number)
    archive.write(record_table(spark, "wal", records), batch)
    parts = {0: ShardPart(0, start, start + len(frames), records=len(frames), frames=len(frames))}
    ManifestLog(spark, path, PLANTED).commit(Manifest(b"a" * 16, PLANTED, JOURNAL, number, batch, 0, parts))
