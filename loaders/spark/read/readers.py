"""A journal's topics as DataFrames with typed columns, as of now or as streams; docs/SPARK.md has all columns.

    read_wal, stream_wal       operations and frames, and the records that are no frames
    read_table, stream_table   records with their updates, marks, skipped records; or every change of a row
    read_transactions          transactions in doubt, and the operations that wait for them

DataFrames are lazy: every action reads the topic again, as it is then. Within `failures.journal_errors`, Spark's errors
about Kafka become the journal's errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from loaders.spark.read import frames
from loaders.spark.read.archived import archive_path, joined
from loaders.spark.read.loading import load, load_stream
from loaders.spark.read.source import JournalSource, control, identity_and_begun, require_all_shards
from loaders.spark.read.start import readable_start
from loaders.spark.session.failures import journal_errors

_LEFT = "starting={shard: EARLIEST, ...} takes what there is"
_ARCHIVED_OR_LEFT = f"include_archive=True reads it from the archive, {_LEFT}"


class Wal(NamedTuple):
    """What was read of a WAL. Each record of the WAL is a row of `frames`, or of `dead_letters` if it is no frame; each
    operation of a frame is a row of `operations`."""

    operations: DataFrame
    frames: DataFrame
    dead_letters: DataFrame


class Table(NamedTuple):
    """The state that a table holds: the fold of the WAL up to each shard's mark."""

    records: DataFrame
    marks: DataFrame
    skipped: DataFrame
    dead_letters: DataFrame


class TableChanges(NamedTuple):
    """Rows of a table topic as they are written."""

    changes: DataFrame
    dead_letters: DataFrame


class TransactionTables(NamedTuple):
    """The transactions of a table that are not settled."""

    transactions: DataFrame
    operations: DataFrame


# ---- readers -----------------------------------------------------------------------------------------------


def read_wal(
    spark: SparkSession,
    source: JournalSource,
    *,
    starting: Mapping[int, int] | None = None,
    ending: Mapping[int, int] | None = None,
    include_archive: str | bool = False,
) -> Wal:
    """The committed WAL, or each shard's part from `starting` to before `ending` ({shard: offset}, of all shards).

    `source.EARLIEST` as an offset takes what is left of a trimmed shard. `include_archive` is an archive's path, or
    True for the archive that the journal's marks name: the result is then all that the archive has and the WAL from its
    end, and cannot be bounded.

    Raises TopicError for a journal that does not exist, RowError for one of another format, GapError if requested
    records have been trimmed (the error names them), ConfigError for offsets that leave a shard out, and ArchiveError
    like `archived.joined` and `archived.archive_path`.
    """
    if include_archive is not False:
        return _with_archive(spark, source, include_archive, bounded=starting is not None or ending is not None)
    journal, begun = identity_and_begun(source)
    require_all_shards(journal, ending)
    start = readable_start(source, journal, starting, begun=begun, mend=_ARCHIVED_OR_LEFT)
    return Wal(*(load(spark, source, table, starting=start, ending=ending) for table in Wal._fields))


def stream_wal(
    spark: SparkSession,
    source: JournalSource,
    *,
    starting: Mapping[int, int] | None = None,
    max_offsets: int | None = None,
) -> Wal:
    """The WAL as streams. Each stream that is started reads the topic. Raises the errors of `read_wal`.

    A query that goes on from its checkpoint fails if records were trimmed meanwhile.
    """
    journal, begun = identity_and_begun(source)
    start = readable_start(source, journal, starting, begun=begun, mend=_LEFT)
    return Wal(*(load_stream(spark, source, table, starting=start, max_offsets=max_offsets) for table in Wal._fields))


def read_table(spark: SparkSession, source: JournalSource) -> Table:
    """The records with their updates, as of each shard's newest mark. Raises TopicError and RowError like
    `read_wal`."""
    names = ("records", "marks", "skipped", "dead_rows")
    return Table(*(load(spark, source, name) for name in names))


def skipped_places(spark: SparkSession, source: JournalSource) -> list[tuple[int, int]]:
    """The WAL records (shard, offset) that operators have had skipped. Raises the errors of `read_table`."""
    with journal_errors():
        found = load(spark, source, "skipped", columns=("shard", "offset")).collect()
    return sorted((row["shard"], row["offset"]) for row in found)


def stream_table(spark: SparkSession, source: JournalSource, *, max_offsets: int | None = None) -> TableChanges:
    """Every row that is written or deleted, marks included. The rows up to a shard's MARK belong together."""
    names = ("changes", "dead_rows")
    return TableChanges(*(load_stream(spark, source, name, max_offsets=max_offsets) for name in names))


def read_transactions(spark: SparkSession, source: JournalSource) -> TransactionTables:
    """Transactions of more than one group that are not settled, with their xids, and the operations staged for them."""
    parts = load(spark, source, "transactions")
    whole = parts.groupBy("tx").agg(
        F.max("prepared").alias("prepared"),
        F.min("epoch").alias("epoch"),
        F.sum("operations").alias("operations"),
        F.sum("bytes").alias("bytes"),
        F.array_sort(F.collect_set("shard")).alias("shards"),
        F.max("shards_prepared").alias("shards_prepared"),
        F.min("prepared_at").alias("prepared_at"),
        F.first("data", ignorenulls=True).alias("data"),
        F.first("xid", ignorenulls=True).alias("xid"),
    )
    return TransactionTables(whole, load(spark, source, "staged"))


# ---- the WAL -----------------------------------------------------------------------------------------------


def _with_archive(spark: SparkSession, source: JournalSource, archive: str | bool, *, bounded: bool) -> Wal:
    if bounded:
        raise ConfigError("starting and ending are of the WAL alone: read it without the archive")
    found = control(source)
    path = archive if isinstance(archive, str) else archive_path(source, found)
    read = joined(spark, source, found.identity, path)
    return Wal(frames.operations(read), frames.frames(read), frames.dead_letters(read))
