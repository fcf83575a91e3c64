"""The records of an archive, in Parquet files that its manifests name, or in one Delta Lake table. Both have the same
columns, and our readers only read batches that a manifest names.

    Parquet      <path>/frames/journal=NAME/batch=B/day=YYYY-MM-DD/shard=N/*.parquet
    Delta Lake   <path>/table, partitioned by journal, day and shard

Files of a batch that was cut off lie in directories that nobody reads. A Delta table has other readers too, who know no
manifests. So a batch is checked before it enters the table, and the commit that adds it carries its number as Delta's
own transaction of the journal (`txnAppId`, `txnVersion`), so that no batch is added twice. If the job is killed between
that commit and the manifest, or if older manifests are restored from a backup, the next job finds the batches
(`left_over`) and writes the missing manifests instead of the batches.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from journal.errors import ArchiveError, ConfigError
from loaders.spark.read.decoding import HEAD
from loaders.spark.session.packages import SparkPart
from loaders.spark.session.session import check_parts
from loaders.spark.stored.files import Files
from loaders.spark.stored.table_stores import TableFormat, is_delta_conflict

ARCHIVE_SCHEMA = (
    "offset bigint, appended timestamp, key binary, value binary, bytes int, uuid binary, epoch bigint, node string, "
    "`group` bigint, number bigint, previous bigint, last boolean, count int, issued bigint, "
    "journal string, day date, shard int, batch string"
)
"""The archive's columns."""
_COLUMNS = [column.split()[0].strip("`") for column in ARCHIVE_SCHEMA.split(", ")]
_FRAMES = "frames"
_TABLE = "table"
_DELTA_LOG = f"{_TABLE}/_delta_log"
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
_WRITERS_MAX = 8
"""The number of files that a task keeps open. A task reads one shard, so these are files of different days. Without
several open files, Spark would sort all records by directory."""
_DAY_MS = 86_400_000


class Written(NamedTuple):
    """A batch that can be read now, and its number of records if that is known from elsewhere."""

    rows: DataFrame
    records: int | None = None


class LeftOver(NamedTuple):
    """A batch without its manifest: its job was killed, or older manifests were restored from a backup."""

    number: int
    batch: str
    written: Written


class ArchiveFrames(ABC):
    """The records of one journal in one archive."""

    def __init__(self, spark: SparkSession, path: str, journal: str, uuid: bytes) -> None:
        self._spark = spark
        self._path = path
        self._journal = journal
        self._uuid = uuid

    @abstractmethod
    def new_batch(self, number: int) -> str:
        """A name that no batch of any job has had."""

    @abstractmethod
    def write(self, records: DataFrame, batch: str) -> Written | None:
        """Write records of the table `wal`, to be checked. Returns None if there are none."""

    @abstractmethod
    def commit(self, number: int, batch: str, written: Written) -> None:
        """Keep the checked batch for good. Raises ArchiveError if another job archives that journal too."""

    @abstractmethod
    def forget(self, written: Written) -> None:
        """Release the batch's rows in memory, because nobody reads them any more."""

    @abstractmethod
    def left_over(self, number: int) -> LeftOver | None:
        """The first batch with this number or a higher one that was committed, but that no manifest names; None if
        there is none."""

    @abstractmethod
    def files(self) -> Column:
        """An aggregation over rows that were read back: the file names that a manifest keeps."""


class ParquetFrames(ArchiveFrames):
    """Parquet files. Each batch has its own directory, and so Spark's temporary directory in it is also its own: the
    first of two jobs that wrote into one directory would delete it for both."""

    def __init__(self, spark: SparkSession, path: str, journal: str, uuid: bytes) -> None:
        super().__init__(spark, path, journal, uuid)
        self._frames = f"{path}/{_FRAMES}"
        self._own = f"{self._frames}/journal={journal}"

    def new_batch(self, number: int) -> str:
        return f"{number:012d}-{secrets.token_hex(4)}"

    def write(self, records: DataFrame, batch: str) -> Written | None:
        seen = Observation()
        counted = records.observe(seen, F.count("*").alias("records"))
        place = f"{self._own}/batch={batch}"
        rows = _rows(counted, self._journal, batch).drop("journal", "batch")  # the directories' names have these
        _unsorted(rows).write.partitionBy("day", "shard").parquet(place)
        found = seen.get["records"]
        return Written(_parquet(self._spark, self._frames, place), found) if found else None

    def commit(self, number: int, batch: str, written: Written) -> None:
        """Do nothing: the manifest will name the files."""

    def forget(self, written: Written) -> None:
        """Do nothing: the rows are in files."""

    def left_over(self, number: int) -> LeftOver | None:
        """None: files without a manifest may be half a batch, which is written again."""
        return None

    def files(self) -> Column:
        return F.array_sort(F.collect_set(F.col("_metadata.file_path")))


class DeltaFrames(ArchiveFrames):
    """A Delta Lake table, in which each batch is one commit."""

    def __init__(self, spark: SparkSession, path: str, journal: str, uuid: bytes) -> None:
        super().__init__(spark, path, journal, uuid)
        self._table = f"{path}/{_TABLE}"
        self._token = uuid.hex()[:8]
        """A part of the batches' names. A journal that was deleted and created again has another token."""

    def new_batch(self, number: int) -> str:
        return f"{number:012d}-{self._token}{secrets.token_hex(4)}"

    def write(self, records: DataFrame, batch: str) -> Written | None:
        """Keep the batch's rows beside the table until they are checked and added, so that they are read from Kafka
        once. They take as much room as one batch."""
        written = Written(_rows(records, self._journal, batch).persist())
        if written.rows.isEmpty():  # an empty commit would use up the batch's number
            self.forget(written)
            return None
        return written

    def commit(self, number: int, batch: str, written: Written) -> None:
        try:
            self._append(number, written.rows)
        except Py4JJavaError as error:
            if not is_delta_conflict(error):
                raise
            self._append_again(number, batch, written.rows)
        if self._written(batch).isEmpty():  # Delta silently omits a commit whose number it has
            raise ArchiveError(_other_job(self._table, batch))

    def _append_again(self, number: int, batch: str, rows: DataFrame) -> None:
        """Append again after a conflict with another job of this journal, or with one of another journal that created
        the table at the same moment. No other conflict is possible."""
        if self.left_over(number) is not None:
            raise ArchiveError(_other_job(self._table, batch))
        try:
            self._append(number, rows)
        except Py4JJavaError as error:
            if is_delta_conflict(error):
                raise ArchiveError(_other_job(self._table, batch)) from error
            raise

    def _append(self, number: int, rows: DataFrame) -> None:
        once = {"txnAppId": f"kafka-journal archive {self._uuid.hex()}", "txnVersion": str(number)}
        writer = _unsorted(rows).write.format("delta").mode("append").options(**once)
        writer.partitionBy("journal", "day", "shard").save(self._table)

    def forget(self, written: Written) -> None:
        written.rows.unpersist()

    def left_over(self, number: int) -> LeftOver | None:
        if not _is_delta(self._spark, self._path):
            return None
        # this is a range of names, because Delta knows the least and the greatest name in each file
        from_number = F.col("batch") >= f"{number:012d}"
        own = F.substring("batch", len(f"{number:012d}-") + 1, len(self._token)) == self._token
        of_journal = self._all().where((F.col("journal") == self._journal) & from_number & own)
        (found,) = of_journal.agg(F.min("batch").alias("batch")).collect()
        batch = found["batch"]
        return None if batch is None else LeftOver(int(batch.partition("-")[0]), batch, Written(self._written(batch)))

    def files(self) -> Column:
        """No files: Delta's log has them, and Delta may merge them."""
        return F.array().cast("array<string>")

    def _written(self, batch: str) -> DataFrame:
        return self._all().where((F.col("journal") == self._journal) & (F.col("batch") == batch))

    def _all(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._table).select(*_COLUMNS)


def open_frames(spark: SparkSession, path: str, journal: str, uuid: bytes, kept_as: TableFormat) -> ArchiveFrames:
    """Open an archive for writing, or begin one. Raises ConfigError if the archive has another format, and
    MissingExtraError if the session cannot write it."""
    found = kept_in(spark, path)
    if found is not None and found is not kept_as:
        raise ConfigError(f"{path} is an archive in format {found.value}: go on with --format {found.value}")
    if kept_as is TableFormat.PARQUET:
        return ParquetFrames(spark, path, journal, uuid)
    check_parts(spark, {SparkPart.DELTA})
    return DeltaFrames(spark, path, journal, uuid)


def kept_in(spark: SparkSession, path: str) -> TableFormat | None:
    """The format of the archive at a path; None if the archive is empty."""
    if _is_delta(spark, path):
        return TableFormat.DELTA
    return TableFormat.PARQUET if Files(spark, path).names(_FRAMES) else None


def all_frames(spark: SparkSession, path: str, journal: str | None) -> DataFrame:
    """All records of one journal or of all, whether a manifest names them or not."""
    if _is_delta(spark, path):
        check_parts(spark, {SparkPart.DELTA})
        found = spark.read.format("delta").load(f"{path}/{_TABLE}").select(*_COLUMNS)
        return found if journal is None else found.where(F.col("journal") == journal)
    frames = f"{path}/{_FRAMES}"
    return _parquet(spark, frames, frames if journal is None else f"{frames}/journal={journal}")


def _parquet(spark: SparkSession, frames: str, place: str) -> DataFrame:
    """The records in a directory of an archive's Parquet files."""
    return spark.read.schema(ARCHIVE_SCHEMA).option("basePath", frames).parquet(place)


def _is_delta(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table. A log without a commit belongs to a job that was killed at its first commit."""
    return any(name.endswith(".json") for name in Files(spark, path).names(_DELTA_LOG))


def _other_job(place: str, batch: str) -> str:
    return f"batch {batch} is not in {place}: another job writes there; one job at a time may write to an archive"


# ---- columns -----------------------------------------------------------------------------------------------


def _rows(records: DataFrame, journal: str, batch: str) -> DataFrame:
    """Records of the table `wal` in the archive's columns."""
    return records.select(
        "offset",
        "appended",
        "key",
        "value",
        F.length("value").alias("bytes"),
        "uuid",
        *HEAD,
        F.lit(journal).alias("journal"),
        _day().alias("day"),
        "shard",
        F.lit(batch).alias("batch"),
    )


def _unsorted(rows: DataFrame) -> DataFrame:
    """Write rows without sorting them, in a session of this query alone, which has settings of its own."""
    settings = rows.sparkSession.conf
    if settings.get(_WRITERS, "0") == "0":
        settings.set(_WRITERS, str(_WRITERS_MAX))
    return rows


def _day() -> Column:
    """The day in UTC, whatever time zone the session has."""
    return F.expr(f"date_from_unix_date(cast(floor(unix_millis(appended) / {_DAY_MS}) as int))")
