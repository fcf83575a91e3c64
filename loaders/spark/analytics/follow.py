"""Queue analytics as a stream: windows of the WAL, each sent to a sink once it is over.

A window is over when the newest record that was seen is `lateness_s` after the window's end: this is the watermark. A
record that comes later is late: it is counted as late, and in the next window that is sent, so that no depth is ever
wrong.

Depths and ages need everything that is in queues, which no window of Spark's keeps. So each micro-batch reads the state
that the one before left in files, folds its own operations in, and leaves its own state: everything in queues, staged
operations, transactions in doubt, the windows that are over, and the offsets where the next micro-batch begins, so that
the state and these offsets cannot disagree. After a kill, the windows of the newest state go to the sink again, unless
they are known to have reached it. Windows are numbered by their width, so a state belongs to one width and one journal,
and says to which. Its name distinguishes its windows from those of a state that is begun anew.

    <state>/writers/…                the job that goes on from it: `claim`
    <state>/left/NUMBER-WRITER       the state after a batch: the last one, and the one before it
    <state>/left/NUMBER-WRITER/sent  exists once the sink has the windows

A directory of `left` belongs to one job, and is whole once its clock exists, which is written last. So a job that was
replaced and does not know this yet writes nothing among the other job's files, although both began with the same state.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from loaders.spark.analytics.analytics import width_of
from loaders.spark.analytics.queue_events import (
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
from loaders.spark.analytics.queue_windows import windows
from loaders.spark.analytics.window_sinks import Sink, WindowSpan
from loaders.spark.fold.fold import is_one_of
from loaders.spark.read.loading import load_stream
from loaders.spark.read.readers import skipped_places
from loaders.spark.read.source import JournalIdentity, JournalSource, identity
from loaders.spark.read.start import readable_start
from loaders.spark.session.wire import table_of
from loaders.spark.stored.claim import PlaceClaim, names_of
from loaders.spark.stored.files import Files
from loaders.spark.stored.micro_batches import run_micro_batches

_NO_STREAM = "--from-archive PATH is of an archive that has it, without --follow"
_CLOCK_SCHEMA = (
    "journal binary, width_ms bigint, name string, until bigint, first bigint, over bigint, ends map<string, bigint>"
)
_STATE: Mapping[str, str] = {
    "events": EVENTS_SCHEMA,
    "doubts": DOUBTS_SCHEMA,
    "waiting": OPERATIONS_SCHEMA,
    "markers": MARKERS_SCHEMA,
    "clock": _CLOCK_SCHEMA,
}
_LEFT, _WINDOWS, _SENT = "left", "windows", "sent"

BadInput = Callable[[DeadLetters], None]
"""Called with the records of a micro-batch that are no frames of the journal, if there are any. If the micro-batch is
run again, this function is called again."""


class Left(NamedTuple):
    """The state after a micro-batch: the name of its directory, and its clock, which is the row that was written
    last."""

    name: str
    clock: Row

    @property
    def number(self) -> int:
        """The number of the micro-batch."""
        return _number(self.name)


class Over(NamedTuple):
    """The numbers of the windows that are over."""

    windows: DataFrame
    told: WindowSpan


class WindowsFollower:
    """The state from micro-batch to micro-batch, in files at `state`, in any file system of Hadoop's."""

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
        self._claim = PlaceClaim(self._files)
        self._width_ms = width_ms
        self._lateness_ms = lateness_ms
        self._bad_input = bad_input
        self.name = secrets.token_hex(8)
        """The state's name, which never changes. An existing state keeps its name."""
        self.ends: Mapping[int, int] = {}
        """Where the next micro-batch begins in each shard, according to an existing state."""
        self._newest: Left | None = None

    def begin(self) -> bool:
        """Take the state for this job: no other job may continue from it now. Returns whether a state exists. Raises
        ConfigError for a state of another journal or window width, which stays as it was."""
        newest = self._left()
        if newest is not None:
            self._require_own(newest.clock)
        self._claim.take()
        newest = self._left()  # another job may have written a newer state in between
        if newest is not None:
            self._newest, self.name = newest, newest.clock["name"]
            self.ends = {int(shard): end for shard, end in newest.clock["ends"].items()}
        return newest is not None

    def unsent(self) -> Over | None:
        """The windows of the newest state, unless they are known to have reached the sink."""
        newest = self._newest
        if newest is None or newest.clock["over"] is None or _SENT in self._files.names(f"{_LEFT}/{newest.name}"):
            return None
        windows = self._spark.read.parquet(self._files.place(f"{_LEFT}/{newest.name}/{_WINDOWS}"))
        return Over(windows, WindowSpan(self.name, newest.clock["over"], newest.clock["first"]))

    def sent(self) -> None:
        """Called when the sink has the windows of the newest state. They are not sent again, even after a kill."""
        if self._newest is not None:
            self._files.write_new(f"{_LEFT}/{self._newest.name}/{_SENT}", "")

    def require(self) -> None:
        """Raises ConfigError once another job has taken the state."""
        if self.is_taken():
            raise ConfigError(self.taken())

    def is_taken(self) -> bool:
        """Whether another job has taken the state."""
        return self._claim.is_taken()

    def taken(self) -> str:
        """The error that says that another job has taken the state."""
        return f"another job goes on from the state at {self._state} now: one at a time may, end one of the two"

    def windows(self, entries: DataFrame) -> Over | None:
        """The windows that are over at the end of a micro-batch; None if none is. `entries` have the columns of that
        table and `skip`. The state must be this job's (`begin`)."""
        clock = None if self._newest is None else self._newest.clock
        before = {name: self._read(name, self._newest) for name in _STATE}
        entries = entries.localCheckpoint()
        newest = entries.groupBy("shard").agg(F.max("offset").alias("offset")).collect()
        self.ends = {**self.ends, **{row["shard"]: row["offset"] + 1 for row in newest}}
        part = read_part(entries)
        span = span_of(part)
        if span.dead_letters.count and self._bad_input is not None:
            self._bad_input(span.dead_letters)
        known = [time for time in (span.end_ms, clock["until"] if clock else None) if time is not None]
        if not known:
            del before["clock"]
            self._write(before, None, until=None, first=None)
            return None
        width, until = self._width_ms, max(known)
        begin = clock["first"] if clock and clock["first"] is not None else (span.begin_ms or 0) // width
        following = max(begin, (until - self._lateness_ms) // width)
        floor_ms = begin * width if clock and clock["first"] is not None else None
        markers = before["markers"].union(markers_of(part))
        now = happened(before["waiting"].union(operations_of(part)), markers, floor_ms)
        events = before["events"].union(now.events).localCheckpoint()
        doubts = before["doubts"].union(now.doubts).localCheckpoint()
        over = None
        if following > begin:
            names = queue_names(events)
            told = windows(stays(events).localCheckpoint(), doubts, names, width, begin, following - 1)
            over = Over(told.localCheckpoint(), WindowSpan(self.name, begin, following))
        after = following * width
        state = {
            "events": unfinished(events, after),
            "doubts": doubts.where(F.col("settled").isNotNull() & (F.col("settled_counted") >= after)),
            "waiting": now.waiting,
            "markers": markers,
        }
        self._write(state, over, until=until, first=following)
        return over

    def _require_own(self, clock: Row) -> None:
        if clock["ends"] is None:
            raise ConfigError(f"the state at {self._state} is of an earlier kafka-journal: begin another one")
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

    def _left(self) -> Left | None:
        """The state after the newest micro-batch. If several jobs completed that micro-batch, it is the state of the
        job that was started last."""
        for name in reversed(names_of(self._files, _LEFT)):
            try:
                clock = self._at("clock", name).first()
            except AnalysisException:
                continue  # a job was killed while it wrote this state
            if clock is not None:
                return Left(name, clock)
        return None

    def _read(self, name: str, left: Left | None) -> DataFrame:
        return table_of(self._spark, _STATE[name], []) if left is None else self._at(name, left.name)

    def _at(self, name: str, directory: str) -> DataFrame:
        return self._spark.read.schema(_STATE[name]).parquet(self._files.place(f"{_LEFT}/{directory}/{name}"))

    def _write(
        self, state: Mapping[str, DataFrame], over: Over | None, *, until: int | None, first: int | None
    ) -> None:
        """Write the state after a micro-batch. The states after the last two micro-batches are kept, even those that
        another job wrote. So if this job is killed while it writes, the next job still finds a complete state."""
        number = 0 if self._newest is None else self._newest.number + 1
        name = f"{number:012d}-{self._claim.writer}"
        clock = {
            "journal": self._journal.uuid,
            "width_ms": self._width_ms,
            "name": self.name,
            "until": until,
            "first": first,
            "over": None if over is None else over.told.first,
            "ends": {str(shard): end for shard, end in self.ends.items()},
        }
        files = dict(state) | ({} if over is None else {_WINDOWS: over.windows})
        files["clock"] = table_of(self._spark, _CLOCK_SCHEMA, [clock])
        for each, table in files.items():
            self._put(f"{name}/{each}", table)
        self._newest = Left(name, self._at("clock", name).collect()[0])
        for older in names_of(self._files, _LEFT):
            if _number(older) < number - 1:
                self._files.delete(f"{_LEFT}/{older}")

    def _put(self, name: str, table: DataFrame) -> None:
        table.coalesce(1).write.mode("overwrite").parquet(self._files.place(f"{_LEFT}/{name}"))


def _number(name: str) -> int:
    """The number of the micro-batch that left this directory."""
    return int(name.partition("-")[0])


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
    """Give `sink` the windows of the WAL once they are over, until `stop` is set or, with `once`, up to the present
    end. It continues from the state at the path `state`, which executors must be able to read, too.

    Records that operators have had skipped when this begins are left out, and `left_out` is called with their number if
    there are any.

    Raises the errors of `readers.read_wal`, and ConfigError for a state of another journal or window width, for one
    that is not whole or that another job has taken, for a width of less than a millisecond, and for an infinite
    lateness.
    """
    if not 0 <= lateness_s < math.inf:
        raise ConfigError(f"a lateness of {lateness_s:g} s: expected 0 s or more")
    journal = identity(source)
    follower = WindowsFollower(spark, journal, state, width_of(0, width_s), round(lateness_s * 1000), bad_input)
    if not follower.begin():
        follower.ends = readable_start(source, journal, mend=_NO_STREAM)

    def give(over: Over | None) -> None:
        follower.require()
        if over is not None:
            sink(*over)
            follower.sent()

    def take(records: DataFrame) -> None:
        follower.require()
        give(follower.windows(records))

    places = skipped_places(spark, source)
    if places and left_out is not None:
        left_out(len(places))
    try:
        give(follower.unsent())
        run_micro_batches(
            load_stream(spark, source, "entries", starting=follower.ends, max_offsets=max_offsets).withColumn(
                "skip", is_one_of(places)
            ),
            "analytics",
            source.journal,
            take,
            once=once,
            every_s=every_s,
            stop=stop or threading.Event(),
        )
    except Exception as error:
        # If another job has taken over, almost any error can occur here: for example, it deletes files that this job
        # reads. Then the takeover is the error to report.
        if follower.is_taken():
            raise ConfigError(follower.taken()) from error
        raise
