"""Queue analytics as a stream: windows of the WAL, each told once it is over.

A window is over when the newest record that was seen is `lateness_s` behind its end: that is the watermark. What comes
for it later is late: it counts in the next window that is told, so that no depth is ever wrong, and is counted as late.

Depths and ages want all that is in queues, which no window of Spark's keeps. So each micro-batch reads the state that
the one before left in files, folds its own operations in, and leaves its own state: all that is in queues, staged
operations, transactions in doubt. A batch that is run again, after a kill, finds the same state and the same records,
and writes the same windows again over its own. Windows are numbered by their width, so a state is of one width, as it
is of one journal, and says of which; its name tells its windows from those of a state that is begun anew.

    <state>/checkpoint               Spark's
    <state>/writers/…                the job that goes on from it: `claim`
    <state>/left/NUMBER-WRITER       what a job left behind a batch: of the last one, and of the one before it

A directory of `left` is of one job, and is whole once its clock, which is written last, is there. So what a job writes
that was overtaken, and does not know yet, is nowhere among what the other one writes; both go on from the same.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from loaders.spark.analytics import width_of
from loaders.spark.claim import Claim, names_of
from loaders.spark.failures import StoppedError, is_of_two_queries, journal_errors, translated
from loaders.spark.fold import is_one_of
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
from loaders.spark.readers import readable_start, skipped_places
from loaders.spark.source import JournalIdentity, JournalSource, identity, stream
from loaders.spark.table_stores import Files
from loaders.spark.tables_place import COMMITS, OFFSETS
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
_LEFT = "left"

BadInput = Callable[[DeadLetters], None]
"""Takes what of a micro-batch is no frame of the journal, if anything is; again if the micro-batch is run again."""


class Left(NamedTuple):
    """What a micro-batch left: where, and its clock."""

    place: str
    clock: Row


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
        self._files = Files(spark, state)
        self._claim = Claim(self._files)
        self._width_ms = width_ms
        self._lateness_ms = lateness_ms
        self._bad_input = bad_input
        self.name = secrets.token_hex(8)
        """Of the state, for good: that of one which is there is read."""

    def begin(self) -> bool:
        """From now on this job goes on from the state, and no other one that does. Whether there is one to go on from.

        Raises ConfigError for a state of another journal or window width, which stays as it was, and for one that has
        lost its checkpoint or what the last micro-batch left."""
        newest = self._left()
        if newest is not None:
            self._require_own(newest.clock)
            self.name = newest.clock["name"]
        self._claim.take()
        coming = coming_batch(self._files)
        if newest is not None and coming is None:
            raise ConfigError(f"the state at {self._state} has no checkpoint to go on from: begin another one")
        if coming:
            self._require_left(coming - 1)
        return newest is not None

    def require(self) -> None:
        """Raises ConfigError once another job has taken the state."""
        if self.is_taken():
            raise ConfigError(self.taken())

    def is_taken(self) -> bool:
        """Whether another job has taken the state since."""
        return self._claim.is_taken()

    def taken(self) -> str:
        """What to say once another job has."""
        return f"another job goes on from the state at {self._state} now: one at a time may, end one of the two"

    def disturbed(self) -> str:
        """What to say when another job, which did not know yet that it had been overtaken, or somebody else has
        written what this one was about to."""
        return f"another job, which ends now, or somebody else went on from the state at {self._state} too: start again"

    def windows(self, records: DataFrame, number: int) -> DataFrame | None:
        """The windows that are over by the end of the micro-batch of that number; None if none is. `records` in Kafka's
        columns, with `skip`. The state is this job's by now (`begin`)."""
        left = self._require_left(number - 1) if number else None
        place, clock = left or (None, None)
        if clock:
            self.name = clock["name"]  # one that was overtaken may have begun the state all the same
        before = {name: self._read(name, place) for name in _STATE}
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

    def _require_own(self, clock: Row) -> None:
        uuid, width_ms = bytes(clock["journal"]), clock["width_ms"]
        if uuid != self._journal.uuid:
            raise ConfigError(
                f"the state at {self._state} is of a journal with uuid {uuid.hex()}, not "
                f"{self._journal.uuid.hex()}: begin another one"
            )
        if width_ms != self._width_ms:
            raise ConfigError(
                f"the state at {self._state} is of windows of {width_ms / 1000:g} s, not "
                f"{self._width_ms / 1000:g} s: go on with those, or begin another one"
            )

    def _require_left(self, number: int) -> Left:
        found = self._left(number)
        if found is None:
            raise ConfigError(
                f"the state at {self._state} has a checkpoint, and what micro-batch {number} left is gone: "
                "begin another one"
            )
        return found

    def _left(self, number: int | None = None) -> Left | None:
        """What the micro-batch left, or the newest one; of several jobs that ran it to its end, the last one's."""
        for name in reversed(names_of(self._files, _LEFT)):
            place = self._files.place(f"{_LEFT}/{name}")
            if number in (None, _number(name)) and (clock := self._clock_at(place)):
                return Left(place, clock)
        return None

    def _clock_at(self, place: str) -> Row | None:
        """None of what was not written to its end."""
        try:
            return self._read("clock", place).first()
        except AnalysisException:
            return None

    def _read(self, name: str, place: str | None) -> DataFrame:
        if place is None:
            return table_of(self._spark, _STATE[name], [])
        return self._spark.read.schema(_STATE[name]).parquet(f"{place}/{name}")

    def _write(self, number: int, state: Mapping[str, DataFrame]) -> None:
        """What the last two micro-batches left stays, of any job: one of them is gone on from, whatever becomes of this
        one."""
        place = self._files.place(f"{_LEFT}/{number:012d}-{self._claim.writer}")
        for name, table in state.items():
            table.coalesce(1).write.mode("overwrite").parquet(f"{place}/{name}")
        for name in names_of(self._files, _LEFT):
            if _number(name) < number - 1:
                self._files.delete(f"{_LEFT}/{name}")


def _number(name: str) -> int:
    """Of the micro-batch that left it."""
    return int(name.partition("-")[0])


def coming_batch(files: Files) -> int | None:
    """The micro-batch that Spark begins with, as its checkpoint has it; None if none was ever begun."""
    begun, done = (
        max((int(name) for name in files.names(log) if name.isdigit()), default=-1) for log in (OFFSETS, COMMITS)
    )
    if begun < 0:
        return None
    return begun + 1 if done == begun else begun


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
    left_out: Callable[[int], None] | None = None,
) -> None:
    """Give `sink` the windows of the WAL as they are over: for good, until `stop` is set, or `once`, up to the end as
    of now. Goes on where the state at `state` ends; that is a place which executors have too.

    What operators had skipped when this begins is left out; `left_out` is told how many records, if there are any.
    Raises as `readers.read_wal`, ConfigError for a state of another journal or of windows of another width, one that is
    not whole or that another job has taken since, and for a width of less than a millisecond or a lateness without end.
    """
    if not 0 <= lateness_s < math.inf:
        raise ConfigError(f"a lateness of {lateness_s:g} s: expected 0 s or more")
    journal = identity(spark, source)
    follower = Follower(spark, journal, state, width_of(0, width_s), round(lateness_s * 1000), bad_input)
    # of a state that is there, Spark's checkpoint says where to go on
    start = None if follower.begin() else readable_start(spark, source, journal, mend=_NO_STREAM)
    failed: list[Exception] = []

    def take(records: DataFrame, number: int) -> None:
        try:
            if stop is not None and stop.is_set():
                raise StoppedError
            with journal_errors(source.journal):
                follower.require()
                told = follower.windows(records, number)
                follower.require()
                if told is not None:
                    sink(told, Told(follower.name, number))
        except Exception as error:
            failed.append(error)  # as Spark gives it back, it is a page of Java
            raise

    places = skipped_places(spark, source)
    if places and left_out is not None:
        left_out(len(places))
    records = stream(spark, source, source.wal, starting=start, max_offsets=max_offsets)
    records = records.withColumn("skip", is_one_of(places))
    writer = records.writeStream.queryName(f"analytics {source.journal}").foreachBatch(take)
    writer = writer.option("checkpointLocation", f"{state.rstrip('/')}/checkpoint")
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
    query = writer.start()
    try:
        while not query.awaitTermination(_LOOK_EVERY_S):
            if stop is not None and stop.is_set() and not query.status["isTriggerActive"]:
                break
    except StreamingQueryException as error:
        if failed and isinstance(failed[0], StoppedError):
            return
        # two jobs fail in many ways: on files that the other one has deleted, on Spark's own log of batches
        if follower.is_taken():
            raise ConfigError(follower.taken()) from (failed[0] if failed else error)
        if is_of_two_queries(error):
            raise ConfigError(follower.disturbed()) from error
        raise (failed[0] if failed else translated(error, source.journal) or error) from error
    finally:
        query.stop()
