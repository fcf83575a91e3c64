"""Journal tables: a streaming job that keeps tables up to date with the journal, which anybody can query.

    table topic ──▶ rows ──▶ messages, in_doubt     the state, up to whole checkpoints of each shard
    WAL         ──▶ progress, lives                 the life of each message, even if it never had a row
    neither     ──▶ dead_letters

One query reads both topics, and `foreachBatch` merges a batch into the tables. A file beside the tables says where the
next batch begins (`table_batches`). A batch that was cut off comes again with the same offsets, and applying it again
changes nothing: rows are ordered by their offsets, and the fields of a life are first or last values by WAL position.
Where each shard of the WAL stands is written last, in one step with the operations that wait for their transaction
(`progress`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from journal.process.commands import command
from loaders.spark.fold.fold import is_skipped
from loaders.spark.read import frames
from loaders.spark.read.loading import load, load_stream
from loaders.spark.read.source import EARLIEST, JournalIdentity, JournalSource, identity
from loaders.spark.read.start import readable_start
from loaders.spark.session.failures import journal_errors
from loaders.spark.stored.files import Files
from loaders.spark.stored.micro_batches import run_micro_batches
from loaders.spark.stored.table_batches import Ends, TableBatch
from loaders.spark.stored.table_stores import (
    TableFormat,
    TableStore,
    is_delta_conflict,
    open_store,
    superseded,
)
from loaders.spark.tables import live_tables, lives
from loaders.spark.tables.tables_place import ALL_TABLES, TABLES, TablesPlace, is_described

BATCH_OFFSETS_MAX = 200_000
"""Offsets of both topics and all shards in one batch."""
_DEAD_LETTER_KEYS = ("topic", "partition", "offset")
_SEEN_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class TablesBatch:
    """The numbers of one batch."""

    number: int
    records: int
    dead_letters: int
    gaps: int
    skipped: int


@dataclass(slots=True)
class TablesResult:
    """The result of a run."""

    path: str
    journal: str
    batches: int = 0
    records: int = 0
    dead_letters: int = 0
    """Records that are no frames of this journal, or no rows. They are in the table of that name."""
    gaps: int = 0
    """Frames that do not follow the one before them."""
    skipped: int = 0
    """Records of the WAL that operators had skipped. They count in no life."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each of `TABLES` at the end of the run."""


def keep_tables(
    spark: SparkSession,
    source: JournalSource,
    path: str,
    *,
    kept_as: TableFormat = TableFormat.PARQUET,
    once: bool = False,
    every_s: float = 60.0,
    max_offsets: int = BATCH_OFFSETS_MAX,
    from_trimmed: bool = False,
    retention_ms: int | None = None,
    begun: Callable[[int, int], None] | None = None,
    told: Callable[[TablesBatch], None] | None = None,
    stop: threading.Event | None = None,
    opened: Callable[[Files, TableFormat], TableStore] = open_store,
) -> TablesResult:
    """Keep the tables below `path` (in any file system of Hadoop's). With `once` this goes to the journal's end as of
    now; otherwise it applies a batch every `every_s` until `stop` is set. `begun` is called when the records of a batch
    are read, with their number, and `told` once the batch is in the tables.

    `from_trimmed`: begin with what is left of a trimmed WAL, without the lives that began before. `retention_ms` is the
    table topic's `delete.retention.ms`: a job that was away longer has missed deletions. `opened` opens the tables.

    Raises TopicError for a journal that does not exist, GapError for a WAL that has been trimmed at its beginning or
    after the place where a run ended, and ConfigError for a path whose tables belong to another journal or job, whose
    files do not belong together, or whose job was away too long.
    """
    found = identity(source)
    files = Files(spark, path)
    place = TablesPlace(files, path, now_ms=_now_ms())
    start: Mapping[int, int] = dict.fromkeys(range(found.shards), EARLIEST)
    if not place.open(source.journal, found, kept_as, retention_ms) and not from_trimmed:
        start = readable_start(source, found, mend="--from-trimmed keeps tables of what is left")
    store = opened(files, kept_as)
    job = _TablesJob(source, found, place, store, told or (lambda _batch: None), stop or threading.Event())
    job.skip = is_skipped(spark, source)
    job.begun = begun or (lambda _number, _records: None)
    place.take()
    store.require_known(ALL_TABLES)
    job.result = TablesResult(path.rstrip("/"), source.journal)
    job.run(spark, start, once=once, every_s=every_s, max_offsets=max_offsets)
    for table in TABLES:
        kept = store.read(spark, table)
        job.result.rows[table] = 0 if kept is None else kept.count()
    return job.result


def read_kept(spark: SparkSession, path: str, table: str) -> DataFrame:
    """A table that a job keeps below `path`, in either format, as it is now. Raises ConfigError if there is none, or if
    another release keeps it."""
    files = Files(spark, path)
    stores = (open_store(files, each) for each in TableFormat) if is_described(files, path) else ()
    kept = next((kept for store in stores if (kept := store.read(spark, table))), None)
    if kept is None:
        raise ConfigError(f"{path} has no table {table}: `{command('spark tables', '--to', path)}` makes it")
    return kept


class _Read(NamedTuple):
    """The records of both topics that a batch has."""

    records: int
    end: Ends
    """The offset after the last record, for each partition that the batch has records of."""
    until_ms: int | None
    """All rows of the table topic that were written before this time have been read; None if that is not known."""


class _TablesJob:
    """One run. Its micro-batches come one at a time."""

    result: TablesResult
    begun: Callable[[int, int], None]
    """Called with a batch's number and the number of its records, before they are applied."""
    skip: Column
    """Whether an operator had a WAL record skipped before the run began."""

    def __init__(
        self,
        source: JournalSource,
        journal: JournalIdentity,
        place: TablesPlace,
        store: TableStore,
        told: Callable[[TablesBatch], None],
        stop: threading.Event,
    ) -> None:
        self._source = source
        self._journal = journal
        self._place = place
        self._store = store
        self._told = told
        self._stop = stop
        self._newest_ms: dict[int, int] = {}
        """The newest record's time in each partition of the table topic."""
        self._seen = time.monotonic()
        """When this job last checked that the place is still its own."""
        self._number = 0
        """The number of the next batch."""
        self._ends: Ends = {}
        """Where the next batch begins."""

    def run(
        self, spark: SparkSession, start: Mapping[int, int], *, once: bool, every_s: float, max_offsets: int
    ) -> None:
        """Run the job. `start` is where the WAL is read from if no batch has begun yet."""
        source, batches = self._source, self._store.batches
        began_ms = _now_ms()
        try:
            if (cut_off := batches.cut_off()) is not None:
                with journal_errors():
                    records = self._batch(spark, cut_off).localCheckpoint()
                    self._apply(records, cut_off, self._read(records))
            newest = batches.newest()
            self._number = 0 if newest is None else newest.number + 1
            self._ends = {source.wal: start, source.table: dict.fromkeys(start, EARLIEST)}
            if newest is not None:
                self._ends = newest.end
            run_micro_batches(
                self._stream(spark, max_offsets),
                "tables",
                source.journal,
                self._take,
                once=once,
                every_s=every_s,
                stop=self._stop,
                look=lambda idle: self._look(every_s, idle=idle),
            )
        except ConfigError:
            raise
        except Exception as error:
            # if two jobs run, many things fail, such as reading files that the other job has deleted
            if self._place.is_taken():
                raise ConfigError(self._place.taken()) from error
            if is_delta_conflict(error):
                raise ConfigError(self._place.disturbed()) from error
            raise
        if once and not self._stop.is_set():
            self._place.has_all_until(began_ms)

    def _batch(self, spark: SparkSession, batch: TableBatch) -> DataFrame:
        """The records of a batch, as `_together` has them."""

        def read(table: str, topic: str) -> DataFrame:
            return load(spark, self._source, table, starting=batch.begin[topic], ending=batch.end[topic])

        return _together(read("entries", self._source.wal), read("rows", self._source.table))

    def _stream(self, spark: SparkSession, max_offsets: int) -> DataFrame:
        """The records from the next batch on."""

        def read(table: str, topic: str) -> DataFrame:
            return load_stream(spark, self._source, table, starting=self._ends[topic], max_offsets=max_offsets)

        return _together(read("entries", self._source.wal), read("rows", self._source.table))

    def _look(self, every_s: float, *, idle: bool) -> None:
        """Check now and then, while there is nothing to do, that the place is still this job's."""
        if idle and time.monotonic() - self._seen > _SEEN_EVERY_S:
            self._place.require()
            # the last trigger found nothing new
            self._place.has_all_until(_now_ms() - int(every_s * 1000))
            self._seen = time.monotonic()

    def _take(self, records: DataFrame) -> None:
        """Apply a micro-batch, which continues after the newest batch."""
        records = records.localCheckpoint()
        read = self._read(records)
        if not read.records:
            return
        end = {topic: {**of, **read.end.get(topic, {})} for topic, of in self._ends.items()}
        self._apply(records, TableBatch(self._number, self._ends, end), read)
        self._number, self._ends = self._number + 1, end

    def _apply(self, records: DataFrame, batch: TableBatch, read: _Read) -> None:
        self._place.require()
        self._store.begin(batch)
        self.begun(batch.number, read.records)
        of_table = records.where(F.col("topic") == self._source.table)
        wal = records.where(F.col("topic") == self._source.wal).withColumn("skip", self.skip)
        letters = self._keep_dead_letters(records)
        self._keep_state(of_table)
        gaps, skipped = self._keep_lives(wal), wal.where(_is_first() & F.col("skip")).count()
        result = self.result
        self._place.require()
        self._store.commit()
        if read.until_ms is not None:
            self._place.has_all_until(read.until_ms)
        count = read.records
        result.batches += 1
        result.records += count
        result.dead_letters += letters
        result.gaps += gaps
        result.skipped += skipped
        self._told(TablesBatch(batch.number, count, letters, gaps, skipped))

    def _read(self, records: DataFrame) -> _Read:
        """Summarise the records of a batch. `until_ms` is the newest time of the partition that is furthest behind; it
        is not known until this run has had a record of every partition."""
        newest = F.expr("max(unix_millis(timestamp))").alias("newest_ms")
        told = (F.count(F.when(_is_first(), 1)).alias("records"), F.max("offset").alias("last"), newest)
        found = records.groupBy("topic", "shard").agg(*told).collect()
        self._newest_ms |= {row["shard"]: row["newest_ms"] for row in found if row["topic"] == self._source.table}
        whole = len(self._newest_ms) == self._journal.shards
        end: dict[str, dict[int, int]] = {}
        for row in found:
            end.setdefault(row["topic"], {})[row["shard"]] = row["last"] + 1
        until_ms = min(self._newest_ms.values()) if whole else None
        return _Read(sum(row["records"] for row in found), end, until_ms)

    # ---- one batch ---------------------------------------------------------------------------------------------

    def _keep_dead_letters(self, records: DataFrame) -> int:
        letters = frames.dead_letters(records).localCheckpoint()
        self._store.replace("dead_letters", _DEAD_LETTER_KEYS, letters)
        return letters.count()

    def _keep_state(self, records: DataFrame) -> None:
        """Apply the rows of the table topic: first the rows, then the tables made from them, and last the pending
        rows."""
        spark, store = records.sparkSession, self._store
        before = store.read(spark, "pending")
        newest, pending = live_tables.checkpoints(records, before)
        gone = newest.where("deleted").select(*live_tables.ROW_KEYS)
        store.replace("rows", live_tables.ROW_KEYS, newest.where("not deleted"), gone)
        state = store.read(spark, "rows")
        if state is not None:
            stored = store.read(spark, "messages")
            touched = live_tables.touched_messages(newest, stored).localCheckpoint()
            waiting = live_tables.live_messages(state, touched)
            self._replace("messages", live_tables.MESSAGE_KEYS, stored, touched, waiting)
            stored = store.read(spark, "in_doubt")
            touched = live_tables.touched_transactions(newest).localCheckpoint()
            in_doubt = live_tables.in_doubt(state, touched)
            self._replace("in_doubt", live_tables.IN_DOUBT_KEYS, stored, touched, in_doubt)
        if (before is not None and not before.isEmpty()) or not pending.isEmpty():
            store.overwrite("pending", pending)

    def _keep_lives(self, wal: DataFrame) -> int:
        """Apply the WAL: first the lives, and last, in one change, the state from which the next batch continues.
        Raises ConfigError if another job has taken the tables by then."""
        spark, store = wal.sparkSession, self._store
        before = store.read(spark, "progress")
        found = lives.wal_batch(wal, before, self._source.wal)
        events, carried = lives.life_events(found.operations).localCheckpoint(), found.carried.localCheckpoint()
        stored = store.read(spark, "lives")
        touched = events.select("shard", "message").distinct()
        now = lives.lives(events, stored, lives.queues_of(carried))
        self._replace("lives", lives.LIFE_KEYS, stored, touched, now)
        self._place.require()
        store.overwrite("progress", carried)
        return found.frames.where("gap").count()

    def _replace(
        self, table: str, keys: tuple[str, ...], stored: DataFrame | None, scope: DataFrame, fresh: DataFrame
    ) -> None:
        """In a kept table, replace the rows of `stored` that match `scope` by the rows `fresh`."""
        if stored is not None and scope.isEmpty():
            return
        fresh = fresh.localCheckpoint()
        self._store.replace(table, keys, fresh, superseded(stored, scope, fresh, keys))


def _is_first() -> Column:
    """Whether a row of `_together` is the first one of its record."""
    return F.coalesce("index", F.lit(0)) == 0


def _together(entries: DataFrame, rows: DataFrame) -> DataFrame:
    """Both topics as one table: the columns of `entries` and `rows`, and the values of what is no frame or row."""
    faulty = F.when(F.col("fault").isNotNull(), F.col("value"))
    of_table = rows.withColumn("value", faulty).withColumn("timestamp", F.col("written"))
    return entries.unionByName(of_table, allowMissingColumns=True)


def _now_ms() -> int:
    return int(time.time() * 1000)
