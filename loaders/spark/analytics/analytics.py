"""Queue analytics of a WAL or an archive: what each queue was like, window by window and over the whole time.

    queue_events    operations -> stays of messages in queues, transactions in doubt
    queue_windows   those -> windows
    this file       all windows up to now
    follow          the same as a stream

It serves journals of a message store only. All numbers are exact but for percentiles, which are those of
`approx_percentile`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from loaders.spark.analytics.queue_events import (
    DeadLetters,
    happened,
    markers_of,
    operations_of,
    queue_names,
    read_part,
    span_of,
    stays,
)
from loaders.spark.analytics.queue_windows import QUEUE, latencies, summary, windows
from loaders.spark.fold.fold import is_one_of
from loaders.spark.read.archived import newest_manifest, read_archive, require_beginning
from loaders.spark.read.frames import with_operations
from loaders.spark.read.loading import load
from loaders.spark.read.readers import skipped_places
from loaders.spark.read.source import JournalIdentity, JournalSource, identity
from loaders.spark.read.start import readable_start
from loaders.spark.session.failures import journal_errors

WINDOWS_SHOWN = 120
"""About this many windows are shown if no width is given."""
WIDTHS_MS = (100, 200, 500, *(1000 * s for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600)))
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Epoch:
    """One activation of a node."""

    epoch: int
    node: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue, or all queues, over the whole time. Percentiles are those of the time in queue of messages that left."""

    queue: str
    came_in: int
    went_out: int
    depth: int
    depth_max: int
    oldest_age_s: float | None
    redeliveries: int
    in_doubt: int
    in_doubt_age_s: float | None
    p50_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class Analytics:
    """The results up to `until_ms`, the newest record's time. Times are in ms since 1970."""

    journal: str
    from_ms: int
    until_ms: int
    width_ms: int
    windows: DataFrame
    queues: list[QueueSummary]
    total: QueueSummary
    latencies: dict[int, int]
    epochs: list[Epoch]
    dead_letters: DeadLetters
    """Records that are no frames of the journal. They are counted nowhere else."""
    skipped: int
    """Records that operators have had skipped, according to the table or the archive. They are counted nowhere else."""


def analytics(
    spark: SparkSession, source: JournalSource, *, archive: str | None = None, width_s: float | None = None
) -> Analytics:
    """The analytics of the committed WAL or, with `archive` (a path), of that archive alone, without asking Kafka.

    Windows are `width_s` wide; without it there are about `WINDOWS_SHOWN` windows. Raises the errors of
    `readers.read_wal` and `archived.newest_manifest`, and ArchiveError for an archive that was begun after a trim, as
    depths would be wrong.
    """
    if archive is None:
        journal = identity(source)
        places = skipped_places(spark, source)
        start = readable_start(source, journal, mend="--from-archive PATH is of an archive that has it")
        entries = load(spark, source, "entries", starting=start)
    else:
        manifest = newest_manifest(spark, archive, source.journal)
        require_beginning(spark, archive, source.journal)
        journal = JournalIdentity(manifest.uuid, len(manifest.parts))
        places = manifest.skipped_and_archived()
        entries = with_operations(read_archive(spark, archive, source.journal), source.wal, journal)
    with journal_errors():
        with_skips = entries.withColumn("skip", is_one_of(places))
        return analysed(with_skips, source.journal, width_s, skipped=len(places))


def analysed(entries: DataFrame, name: str, width_s: float | None = None, *, skipped: int = 0) -> Analytics:
    """The analytics of rows of the table `entries` and the column `skip`; `skipped` is the number of records to
    skip."""
    part = _computed(read_part(entries))
    took_effect = happened(operations_of(part), markers_of(part), None)
    events, doubts = _computed(took_effect.events), _computed(took_effect.doubts)
    of_messages = _computed(stays(events))
    span = span_of(part)
    begin, end = span.begin_ms or 0, span.end_ms or 0
    width_ms = width_of(end - begin, width_s)
    names = queue_names(events)
    rows = _computed(windows(of_messages, doubts, names, width_ms, begin // width_ms, end // width_ms))
    queues, total = _summaries(of_messages, rows, doubts, end)
    return Analytics(
        journal=name,
        from_ms=begin,
        until_ms=end,
        width_ms=width_ms,
        windows=rows,
        queues=queues,
        total=total,
        latencies={row["bucket"]: row["count"] for row in latencies(of_messages).collect()},
        epochs=_epochs(part),
        dead_letters=span.dead_letters,
        skipped=skipped,
    )


def width_of(span_ms: int, width_s: float | None) -> int:
    """A window's width in ms: the given one, or a round one that gives about `WINDOWS_SHOWN` windows for a span."""
    if width_s is not None:
        if not 0.001 <= width_s < math.inf:
            raise ConfigError(f"a window of {width_s:g} s: expected 0.001 s or more")
        return round(width_s * 1000)
    wanted = span_ms / WINDOWS_SHOWN
    return next((width for width in WIDTHS_MS if width >= wanted), DAY_MS * math.ceil(wanted / DAY_MS))


def _summaries(
    of_messages: DataFrame, rows: DataFrame, doubts: DataFrame, until_ms: int
) -> tuple[list[QueueSummary], QueueSummary]:
    """The summary of each queue, the busiest first, and the one of all queues."""
    most = {
        row["queue_id"]: row["most"] for row in rows.groupBy("queue_id").agg(F.max("depth").alias("most")).collect()
    }
    together = rows.groupBy("window_start").agg(F.sum("depth").alias("depth"))
    (most_in_all,) = together.agg(F.max("depth").alias("most")).collect()
    open_doubts = doubts.where(F.col("settled").isNull())
    per_queue = open_doubts.groupBy("queue_id").agg(
        F.count_distinct("tx").alias("count"), F.min("prepared").alias("oldest")
    )
    in_doubt = {row["queue_id"]: row for row in per_queue.collect()}
    (all_in_doubt,) = open_doubts.agg(
        F.count_distinct("tx").alias("count"), F.min("prepared").alias("oldest")
    ).collect()
    queues = [
        _summary(row, row["queue"], most.get(row["queue_id"], 0), in_doubt.get(row["queue_id"]), until_ms)
        for row in summary(of_messages, *QUEUE, "queue").collect()
    ]
    (total,) = summary(of_messages).collect()
    queues.sort(key=lambda each: (-each.came_in, each.queue))
    return queues, _summary(total, "all queues", most_in_all["most"] or 0, all_in_doubt, until_ms)


def _summary(row: Row, queue: str, depth_max: int, in_doubt: Row | None, until_ms: int) -> QueueSummary:
    def age(since: int | None) -> float | None:
        return None if since is None else max(0, until_ms - since) / 1000

    return QueueSummary(
        queue=queue,
        came_in=row["came_in"],
        went_out=row["went_out"],
        depth=row["depth"],
        depth_max=depth_max,
        oldest_age_s=age(row["oldest"]),
        redeliveries=row["redeliveries"],
        in_doubt=in_doubt["count"] if in_doubt is not None else 0,
        in_doubt_age_s=age(in_doubt["oldest"]) if in_doubt is not None else None,
        p50_s=row["p50_s"],
        p99_s=row["p99_s"],
    )


def _computed(table: DataFrame) -> DataFrame:
    """Compute a table now, and keep it as long as it is used. Later steps read it several times, and without this Spark
    would repeat the table's whole query plan each time."""
    return table.localCheckpoint()


def _epochs(part: DataFrame) -> list[Epoch]:
    begun = markers_of(part).groupBy("epoch").agg(F.min("at").alias("at"), F.min_by("node", "at").alias("node"))
    return [Epoch(row["epoch"], row["node"], row["at"]) for row in begun.orderBy("epoch").collect()]
