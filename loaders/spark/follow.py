"""Queue analytics as a stream: windows of the WAL, each told once it is over.

A window is over when the newest record that was seen is `lateness_s` behind its end: that is the watermark. What comes
for it later is late: it counts in the next window that is told, so that no depth is ever wrong, and is counted as late.

Depths and ages want all that is in queues, which no window of Spark's keeps. So each micro-batch reads the state that
the one before left in files, folds its own operations in, and leaves its own state: all that is in queues, staged
operations, transactions in doubt. A batch that is run again, after a kill, finds the same state and the same records,
and writes the same windows again over its own. Windows are numbered by their width, so a state is of one width, as it
is of one journal, and says of which; its name tells its windows from those of a state that is begun anew.

    <state>/checkpoint               Spark's
    <state>/turn=0, <state>/turn=1   what the last batch left, and the one before it, by turns
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError, JournalError
from loaders.spark.analytics import width_of
from loaders.spark.failures import journal_errors, translated
from loaders.spark.fold import is_skipped
from loaders.spark.queue_events import (
    DOUBTS_SCHEMA,
    EVENTS_SCHEMA,
    MARKERS_SCHEMA,
    OPERATIONS_SCHEMA,
    DeadLetters,
    happened,
    markers_of,
    operations_of,
    queue_names,
    read_part,
    span_of,
    stays,
    unfinished,
)
from loaders.spark.queue_windows import windows
from loaders.spark.readers import readable_start
from loaders.spark.source import JournalIdentity, JournalSource, identity, stream
from loaders.spark.window_sinks import Sink, Told
from loaders.spark.wire import table_of

_LOOK_EVERY_S = 1
_NO_STREAM = "--from-archive PATH is of an archive that has it, without --follow"
_CLOCK_SCHEMA = "journal binary, width_ms bigint, name string, until bigint, first bigint"
_STATE: Mapping[str, str] = {
    "events": EVENTS_SCHEMA,
    "doubts": DOUBTS_SCHEMA,
    "waiting": OPERATIONS_SCHEMA,
    "markers": MARKERS_SCHEMA,
    "clock": _CLOCK_SCHEMA,
}

BadInput = Callable[[DeadLetters], None]
"""Takes what of a micro-batch is no frame of the journal, if anything is; again if the micro-batch is run again."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is over by the end of a micro-batch: windows `first` to before `following`."""

    first: int
    following: int


class Follower:
    """The state from micro-batch to micro-batch, in files at `state`, any file system of Hadoop's."""

    def __init__(
        self,
        spark: SparkSession,
        journal: JournalIdentity,
        state: str,
        width_ms: int,
        lateness_ms: int,
        bad_input: BadInput | None = None,
    ) -> None:
        self._spark = spark
        self._journal = journal
        self._state = state.rstrip("/")
        self._width_ms = width_ms
        self._lateness_ms = lateness_ms
        self._bad_input = bad_input
        self.name = secrets.token_hex(8)
        """Of the state, for good: `has_begun` reads that of one which is there."""

    def has_begun(self) -> bool:
        """Whether there is a state to go on from. Raises ConfigError for one of another journal or window width."""
        clocks = [clock for turn in (0, 1) for clock in self._clocks(turn)]
        for clock in clocks:
            uuid, width_ms = bytes(clock["journal"] or b""), clock["width_ms"] or 0
            if uuid != self._journal.uuid:
                raise ConfigError(
                    f"the state at {self._state} is of a journal with uuid {uuid.hex() or 'unknown'}, not "
                    f"{self._journal.uuid.hex()}: begin another one"
                )
            if width_ms != self._width_ms:
                raise ConfigError(
                    f"the state at {self._state} is of windows of {width_ms / 1000:g} s, not "
                    f"{self._width_ms / 1000:g} s: go on with those, or begin another one"
                )
            self.name = clock["name"] or self.name
        return bool(clocks)

    def windows(self, records: DataFrame, number: int) -> DataFrame | None:
        """The windows that are over by the end of the micro-batch of that number; None if none is. `records` in Kafka's
        columns, with `skip`."""
        before = {name: self._read(name, number - 1) for name in _STATE}
        clock = before["clock"].first() if number else None
        part = read_part(records, self._journal).localCheckpoint()
        span = span_of(part)
        if span.dead_letters.count and self._bad_input is not None:
            self._bad_input(span.dead_letters)
        known = [time for time in (span.end_ms, clock["until"] if clock else None) if time is not None]
        if not known:
            self._write(number, before | {"clock": self._clock(None, None)})
            return None
        width, until = self._width_ms, max(known)
        begin = clock["first"] if clock and clock["first"] is not None else (span.begin_ms or 0) // width
        step = Step(begin, max(begin, (until - self._lateness_ms) // width))
        floor_ms = begin * width if clock and clock["first"] is not None else None
        markers = before["markers"].union(markers_of(part))
        now = happened(before["waiting"].union(operations_of(part)), markers, floor_ms)
        events = before["events"].union(now.events).localCheckpoint()
        doubts = before["doubts"].union(now.doubts).localCheckpoint()
        told = None
        if step.following > step.first:
            names = queue_names(events)
            told = windows(stays(events).localCheckpoint(), doubts, names, width, step.first, step.following - 1)
            told = told.localCheckpoint()
        after = step.following * width
        self._write(
            number,
            {
                "events": unfinished(events, after),
                "doubts": doubts.where(F.col("settled").isNotNull() & (F.col("settled_counted") >= after)),
                "waiting": now.waiting,
                "markers": markers,
                "clock": self._clock(until, step.following),
            },
        )
        return told

    def _clock(self, until: int | None, first: int | None) -> DataFrame:
        whose = {"journal": self._journal.uuid, "width_ms": self._width_ms, "name": self.name}
        return table_of(self._spark, _CLOCK_SCHEMA, [whose | {"until": until, "first": first}])

    def _clocks(self, turn: int) -> list[Row]:
        """None of a turn that was not written, or not to its end."""
        try:
            return self._read("clock", turn).collect()
        except AnalysisException:
            return []

    def _read(self, name: str, number: int) -> DataFrame:
        if number < 0:
            return table_of(self._spark, _STATE[name], [])
        return self._spark.read.schema(_STATE[name]).parquet(f"{self._state}/turn={number % 2}/{name}")

    def _write(self, number: int, state: Mapping[str, DataFrame]) -> None:
        for name, table in state.items():
            table.coalesce(1).write.mode("overwrite").parquet(f"{self._state}/turn={number % 2}/{name}")


def follow(
    spark: SparkSession,
    source: JournalSource,
    state: str,
    sink: Sink,
    *,
    width_s: float = 10.0,
    lateness_s: float = 10.0,
    every_s: float = 10.0,
    once: bool = False,
    max_offsets: int | None = None,
    stop: threading.Event | None = None,
    bad_input: BadInput | None = None,
) -> None:
    """Give `sink` the windows of the WAL as they are over: for good, until `stop` is set, or `once`, up to the end as
    of now. Goes on where the state at `state` ends; that is a place which executors have too.

    What operators had skipped when this begins is left out. Raises as `readers.read_wal`, ConfigError for a state of
    another journal or of windows of another width, and for a width of less than a millisecond.
    """
    journal = identity(spark, source)
    follower = Follower(spark, journal, state, width_of(0, width_s), round(lateness_s * 1000), bad_input)
    # of a state that is there, Spark's checkpoint says where to go on
    start = None if follower.has_begun() else readable_start(spark, source, journal, mend=_NO_STREAM)
    failed: list[JournalError] = []

    def take(records: DataFrame, number: int) -> None:
        try:
            with journal_errors(source.journal):
                told = follower.windows(records, number)
                if told is not None:
                    sink(told, Told(follower.name, number))
        except JournalError as error:
            failed.append(error)  # as Spark gives it back, it is a page of Java
            raise

    skip = is_skipped(spark, source)
    records = stream(spark, source, source.wal, starting=start, max_offsets=max_offsets).withColumn("skip", skip)
    writer = records.writeStream.queryName(f"analytics {source.journal}").foreachBatch(take)
    writer = writer.option("checkpointLocation", f"{state.rstrip('/')}/checkpoint")
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
    query = writer.start()
    try:
        while not query.awaitTermination(_LOOK_EVERY_S):
            if stop is not None and stop.is_set() and not query.status["isTriggerActive"]:
                break
    except StreamingQueryException as error:
        raise (failed[0] if failed else translated(error, source.journal) or error) from error
    finally:
        query.stop()
