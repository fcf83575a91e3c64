"""`python -m bench spark`: jobs over a WAL, against Spark's plain copy of the topic to Parquet, in WAL bytes/s.

The archive is a whole run of its job: it reads the control rows and the WAL, parses the fields before the operations,
partitions by day and shard, reads back what it wrote, and writes manifest and marks. The typed table has every
operation as `read_wal` gives it. The plain copy writes Kafka's columns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time

from pyspark.sql import DataFrame, SparkSession

from bench.rounds import Comparison, Outcome, alternate, rounded, say
from bench.scene import Memory, Scene
from bench.workload import Prefill, markers, operation_frames
from journal.config import Settings
from loaders.spark.archive.archive import archive
from loaders.spark.read.readers import read_wal
from loaders.spark.read.source import JournalSource
from loaders.spark.session.packages import SCALA, installed_pyspark
from loaders.spark.session.session import make_session

OPERATIONS = 5_000_000
SHARDS = 8
_READING = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
_SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(bench=os.getpid(), broker=scene.broker_pid), scene.journal(SHARDS) as settings:
        operations = scene.operations(OPERATIONS)
        wal_bytes = _fill(settings, operations)
        # Spark's own source of Kafka, for the plain copy
        packages = {"spark.jars.packages": f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{installed_pyspark()}"}
        spark = make_session("python -m bench", master="local[*]", settings=_SETTINGS | packages)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            jobs = _Jobs(scene, spark, JournalSource.from_settings(settings), wal_bytes)
            archived, beside_archive = alternate(scene.rounds(), jobs.archive_rate, jobs.copy_rate, what="archive")
            checked = [jobs.checked_rate() for _ in range(2)]
            typed, beside_typed = alternate(scene.rounds(), jobs.typed_rate, jobs.copy_rate, what="typed table")
        finally:
            spark.stop()
    outcome.comparisons += [
        Comparison("spark_archive", "wal_bytes_per_s", archived, beside_archive, 0.6),
        Comparison("spark_typed", "wal_bytes_per_s", typed, beside_typed, 0.55),
    ]
    outcome.figures["spark_wal_bytes"] = wal_bytes
    outcome.figures["spark_archive_checked_wal_bytes_per_s"] = rounded(statistics.median(checked))
    outcome.figures["spark_typed_operations_per_s"] = rounded(statistics.median(typed) * operations / wal_bytes)
    outcome.figures |= memory.figures()
    return outcome


def _fill(settings: Settings, operations: int) -> int:
    """Writes operations to the WAL; returns its bytes."""
    say(f"{operations:,} operations into the WAL")
    marking, _ = markers(SHARDS)
    frames = [*marking, *operation_frames(SHARDS, operations, fleeting=True)]
    prefill = Prefill(settings)
    prefill.write(frames)
    prefill.commit()
    return sum(len(frame.value) for frame in frames)


class _Jobs:
    """Jobs over one WAL; each run writes to an empty directory."""

    def __init__(self, scene: Scene, spark: SparkSession, source: JournalSource, wal_bytes: int) -> None:
        self._spark = spark
        self._source = source
        self._wal_bytes = wal_bytes
        self._place = scene.directory / "spark"

    def archive_rate(self) -> float:
        """Archives the WAL; returns WAL bytes a second."""
        return self._archive_rate(check_operations=False)

    def checked_rate(self) -> float:
        return self._archive_rate(check_operations=True)

    def _archive_rate(self, *, check_operations: bool) -> float:
        began = self._anew()
        done = archive(
            self._spark,
            self._source,
            str(self._place),
            once=True,
            replace_other=True,
            check_operations=check_operations,
        )
        took = time.perf_counter() - began
        assert done.bytes == self._wal_bytes
        return self._wal_bytes / took

    def typed_rate(self) -> float:
        began = self._anew()
        read_wal(self._spark, self._source).operations.write.parquet(str(self._place))
        return self._wal_bytes / (time.perf_counter() - began)

    def copy_rate(self) -> float:
        began = self._anew()
        self._wal().write.parquet(str(self._place))
        return self._wal_bytes / (time.perf_counter() - began)

    def _wal(self) -> DataFrame:
        """The WAL by Spark's own Kafka source."""
        place = {"kafka.bootstrap.servers": self._source.bootstrap_servers, "subscribe": self._source.wal}
        return self._spark.read.format("kafka").options(**place, **_READING).load()

    def _anew(self) -> float:
        shutil.rmtree(self._place, ignore_errors=True)
        return time.perf_counter()
