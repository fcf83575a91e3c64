"""The archive: a streaming job that writes a journal's committed WAL to Parquet, every record once.

    <path>/frames/journal=NAME/day=YYYY-MM-DD/shard=N/batch=B/*.parquet
    <path>/manifest/NAME/<number>.json

A batch first writes its files, into directories that nobody else has; then its manifest, which makes them count; then
the archive's mark per shard into the control rows, which lets `trim` delete. A job that starts reads the newest
manifest and nothing else to know where to go on: it has no state of its own, Spark's checkpoint is thrown away with
each run. Killed before the manifest, it leaves files that nobody reads, and the next run writes that part again; killed
behind it, the next run writes the marks.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession, Window
from pyspark.sql import functions as F

from journal.errors import ArchiveError, CorruptionError, GapError, JournalError
from journal.v1.journal_pb2 import Archive
from loaders.spark.failures import journal_errors, translated
from loaders.spark.manifest import Manifest, ManifestLog, ShardPart
from loaders.spark.readers import check_start
from loaders.spark.source import EARLIEST, JournalIdentity, JournalSource, control, identity, stream
from loaders.spark.wire import FORMAT, MAGIC, computed_once, parsed

BATCH_OFFSETS_MAX = 200_000
"""Of all shards, in one batch: a batch that is cut off is written again."""
_LOOK_EVERY_S = 1
_DAY_MS = 86_400_000
_DAYS_NAMED_MAX = 100
_HEAD: Mapping[str, object] = {
    "epoch": 0,
    "node": "",
    "group": 0,
    "number": 0,
    "previous": 0,
    "last": False,
    "count": 0,
    "issued": 0,
}
"""A frame's columns with protobuf's defaults."""
ARCHIVE_SCHEMA = (
    "offset bigint, appended timestamp, key binary, value binary, bytes int, uuid binary, epoch bigint, node string, "
    "`group` bigint, number bigint, previous bigint, last boolean, count int, issued bigint, "
    "journal string, day date, shard int, batch string"
)
"""The archive's columns; the last four are the names of its directories."""


@dataclass(slots=True)
class ArchiveResult:
    """What a run did, and where the archive stands."""

    path: str
    journal: str
    batches: int = 0
    records: int = 0
    bytes: int = 0
    foreign: int = 0
    """Records that are no frames of this journal; they are archived as they are."""
    faults: int = 0
    """Frames that do not follow their predecessor."""
    ends: dict[int, int] = field(default_factory=dict)
    """Per shard the first offset that is not archived."""


def archive(
    spark: SparkSession,
    source: JournalSource,
    path: str,
    *,
    once: bool = False,
    every_s: float = 60.0,
    max_offsets: int = BATCH_OFFSETS_MAX,
    replace_other: bool = False,
    from_trimmed: bool = False,
    told: Callable[[Manifest], None] | None = None,
    stop: threading.Event | None = None,
) -> ArchiveResult:
    """Archive the committed WAL into `path` (any file system of Hadoop's): `once`, to its end as of now, or for good, a
    batch every `every_s`, until `stop` is set. `told` is called behind each batch.

    `replace_other`: the journal has been archived elsewhere; from now on it is this archive that `trim` waits for.
    `from_trimmed`: begin a new archive with what is left of a trimmed WAL.

    Raises ArchiveError for an archive of another journal or another job's, TopicError for a journal that does not
    exist, GapError when records have been trimmed that are not in the archive; it names them.
    """
    job = _Job(spark, source, path, told or (lambda _manifest: None), stop or threading.Event())
    job.open(replace_other=replace_other, from_trimmed=from_trimmed)
    return job.run(once=once, every_s=every_s, max_offsets=max_offsets)


class _Job:
    """One run. Spark calls `_batch` for each micro-batch, one at a time."""

    def __init__(
        self,
        spark: SparkSession,
        source: JournalSource,
        path: str,
        told: Callable[[Manifest], None],
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._source = source
        self._path = path.rstrip("/")
        self._frames = f"{self._path}/frames"
        self._told = told
        self._stop = stop
        self._log = ManifestLog(spark, self._path, source.journal)
        self._error: JournalError | None = None
        self.result = ArchiveResult(self._path, source.journal)

    # ---- where to go on --------------------------------------------------------------------------------------------

    def open(self, *, replace_other: bool, from_trimmed: bool) -> None:
        """Read where the archive stands, and check that the journal is the one it is of. Raises as `archive`."""
        self._identity, begun, marks, _ = control(self._spark, self._source)
        found = self._log.newest()
        if found is not None:
            _require_same(found, self._identity, self._path)
        _require_own(marks, found, self._path, replace_other=replace_other)
        unread = EARLIEST if from_trimmed else 0
        self._starting = None if found is None else {shard: end or unread for shard, end in found.ends().items()}
        if found is not None or not from_trimmed:
            _check_start(self._spark, self._source, self._identity, self._starting, self._path, begun=begun)
        self._from_trimmed = from_trimmed
        no_parts = {shard: ShardPart(shard, 0, 0) for shard in range(self._identity.shards)}
        uuid = self._identity.uuid
        self._manifest = found or Manifest(secrets.token_bytes(16), self._source.journal, uuid, 0, "", 0, no_parts)
        self.result.ends = self._manifest.ends()
        if found is not None and _behind(marks, found):
            self._write_marks(found)

    # ---- the query -------------------------------------------------------------------------------------------------

    def run(self, *, once: bool, every_s: float, max_offsets: int) -> ArchiveResult:
        records = stream(self._spark, self._source, self._source.wal, starting=self._starting, max_offsets=max_offsets)
        writer = records.writeStream.queryName(f"archive {self._source.journal}").foreachBatch(self._batch)
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
        query = writer.start()
        try:
            while not query.awaitTermination(_LOOK_EVERY_S):
                if self._error is not None or (self._stop.is_set() and not query.status["isTriggerActive"]):
                    break
        except StreamingQueryException as error:
            raise translated(error, self._source.journal) or error from error
        finally:
            query.stop()
        if self._error is not None:
            raise self._error
        return self.result

    def _batch(self, records: DataFrame, _spark_number: int) -> None:
        """One micro-batch. Behind an error, or when told to stop, it lets them pass: what Spark takes for done does not
        count, and what it is told of an error comes back as a page of Java.
        """
        if self._error is not None or self._stop.is_set():
            return
        try:
            with journal_errors(self._source.journal):
                self._archive(records)
        except JournalError as error:
            self._error = error

    def _archive(self, records: DataFrame) -> None:
        before = self._manifest
        number = before.number + 1
        batch = f"{number:012d}-{secrets.token_hex(4)}"
        seen = Observation()
        counted = records.observe(
            seen,
            F.count("*").alias("records"),
            F.expr("min(unix_millis(timestamp))").alias("from_ms"),
            F.expr("max(unix_millis(timestamp))").alias("to_ms"),
        )
        rows = _rows(counted, self._source.journal, batch)
        rows.write.mode("append").partitionBy("journal", "day", "shard", "batch").parquet(self._frames)
        told = seen.get
        if not told["records"]:
            return
        written = self._written(batch, _days(told["from_ms"], told["to_ms"]))
        parts = self._parts(written)
        if sum(part.records for part in parts.values()) != told["records"]:
            raise ArchiveError(
                f"batch {batch} wrote {told['records']} records and {sum(part.records for part in parts.values())} are "
                f"in {self._frames}: another job writes there; one job at a time may write to an archive"
            )
        self._check_same_journal(parts)
        parts = self._checked_numbers(written, parts)
        # a shard of which nothing came goes on where it was
        parts = {shard: parts.get(shard) or part.nothing_more() for shard, part in before.parts.items()}
        manifest = replace(before, number=number, batch=batch, written=int(time.time() * 1000), parts=parts)
        self._log.commit(manifest)
        self._manifest = manifest
        self._write_marks(manifest)
        self._count(parts)
        self._told(manifest)

    def _count(self, parts: Mapping[int, ShardPart]) -> None:
        result = self.result
        result.batches += 1
        result.ends = self._manifest.ends()
        for part in parts.values():
            result.records += part.records
            result.bytes += part.bytes
            result.foreign += part.records - part.frames
            result.faults += part.faults

    # ---- what was written ------------------------------------------------------------------------------------------

    def _written(self, batch: str, days: str) -> DataFrame:
        """The files of a batch, read back."""
        place = f"{self._frames}/journal={self._source.journal}/day={days}/shard=*/batch={batch}"
        return self._spark.read.schema(ARCHIVE_SCHEMA).option("basePath", self._frames).parquet(place)

    def _parts(self, written: DataFrame) -> dict[int, ShardPart]:
        """What the batch has of each shard, from what was written."""
        own = F.col("uuid") == F.lit(self._identity.uuid)
        found = written.groupBy("shard").agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.count(F.when(own, 1)).alias("frames"),
            F.min(F.when(own, F.col("number"))).alias("first"),
            F.max(F.when(own, F.struct("epoch", "number"))).alias("newest"),
            F.array_sort(F.collect_set(F.when(own, F.col("epoch")))).alias("epochs"),
            F.sum("bytes").alias("bytes"),
            F.array_sort(F.collect_set(F.col("_metadata.file_path"))).alias("files"),
        )
        return {row["shard"]: self._part(row) for row in found.collect()}

    def _part(self, row: Row) -> ShardPart:
        before = self._manifest.parts[row["shard"]]
        start = row["first_offset"] if self._from_trimmed and not before.end else before.end
        if row["first_offset"] < before.end:
            raise CorruptionError(
                f"the archive has everything below offset {before.end}, and Spark read it again",
                topic=self._source.wal,
                partition=row["shard"],
                offset=row["first_offset"],
            )
        newest = row["newest"]
        # a frame of an older epoch behind a newer marker counts for nothing
        last, epoch = (before.last, before.epoch) if newest is None else (newest["number"], newest["epoch"])
        if epoch < before.epoch:
            last, epoch = before.last, before.epoch
        return ShardPart(
            row["shard"],
            start,
            row["last_offset"] + 1,
            records=row["records"],
            frames=row["frames"],
            first=row["first"] or 0,
            last=last,
            epoch=epoch,
            epochs=tuple(row["epochs"]),
            bytes=row["bytes"] or 0,
            files=tuple(name[name.rindex("/frames/journal=") + 1 :] for name in row["files"]),
        )

    def _check_same_journal(self, parts: Mapping[int, ShardPart]) -> None:
        """Frames of another journal are foreign records, unless the journal was made anew meanwhile."""
        if any(part.records > part.frames for part in parts.values()):
            _require_same(self._manifest, identity(self._spark, self._source), self._path)

    def _checked_numbers(self, written: DataFrame, parts: dict[int, ShardPart]) -> dict[int, ShardPart]:
        """The parts with their faults: frames that do not follow. Raises GapError for a WAL that began anew."""
        checked = dict(parts)
        for shard, part in parts.items():
            before = self._manifest.parts[shard]
            follows = part.first == before.last + 1 or not before.last
            if not part.frames or (follows and part.last - part.first + 1 == part.frames):
                continue
            if part.last <= before.last and part.epoch in part.epochs:
                raise GapError(
                    f"the archive has frames to number {before.last}, and the WAL goes on with {part.first}: it is not "
                    "the one that was archived",
                    topic=self._source.wal,
                    partition=shard,
                    offset=part.start,
                )
            checked[shard] = replace(part, faults=_faults(written, part, before, self._identity.uuid))
        return checked

    # ---- marks -----------------------------------------------------------------------------------------------------

    def _write_marks(self, manifest: Manifest) -> None:
        """Tell how far the archive is: only what a manifest has."""
        rows = [
            (b"archive/%d" % shard, self._mark(manifest, shard, part.end).SerializeToString())
            for shard, part in sorted(manifest.parts.items())
        ]
        table = self._spark.createDataFrame(rows, "key binary, value binary").coalesce(1)
        options = self._source.options() | {"topic": self._source.control, "kafka.acks": "all"}
        with journal_errors(self._source.journal):
            table.write.format("kafka").options(**options).save()

    def _mark(self, manifest: Manifest, shard: int, end: int) -> Archive:
        return Archive(
            journal=manifest.uuid,
            shard=shard,
            offset=end,
            archive=manifest.archive,
            path=self._path,
            timestamp=manifest.written,
        )


# ---- columns -----------------------------------------------------------------------------------------------


def _rows(records: DataFrame, journal: str, batch: str) -> DataFrame:
    """Kafka's columns as the archive's. Hot path: only what a frame says before its operations is parsed."""
    read = computed_once(records, parsed("value", "FrameHead"), "head")
    head = F.col("head")
    is_frame = (head["magic"] == MAGIC) & (head["format"] == FORMAT)
    of_frame = [F.when(is_frame, F.coalesce(head[name], F.lit(default))).alias(name) for name, default in _HEAD.items()]
    return read.select(
        "offset",
        F.col("timestamp").alias("appended"),
        "key",
        "value",
        F.length("value").alias("bytes"),
        F.when(is_frame, F.coalesce(head["journal"], F.lit(b""))).alias("uuid"),
        *of_frame,
        F.lit(journal).alias("journal"),
        _day().alias("day"),
        F.col("partition").alias("shard"),
        F.lit(batch).alias("batch"),
    )


def _day() -> Column:
    """In UTC, whatever time zone the session has."""
    return F.expr(f"date_from_unix_date(cast(floor(unix_millis(timestamp) / {_DAY_MS}) as int))")


def _days(from_ms: int, to_ms: int) -> str:
    """The days between two moments, as a part of a path."""
    days = range(from_ms // _DAY_MS, to_ms // _DAY_MS + 1)
    if len(days) > _DAYS_NAMED_MAX:
        return "*"
    return "{" + ",".join(time.strftime("%Y-%m-%d", time.gmtime(day * _DAY_MS / 1000)) for day in days) + "}"


def _faults(written: DataFrame, part: ShardPart, before: ShardPart, uuid: bytes) -> int:
    """How many frames of a shard do not follow the one before them; those of an older epoch do not count."""
    earlier = Window.partitionBy("shard").orderBy("offset")
    newest = F.coalesce(F.max("epoch").over(earlier.rowsBetween(Window.unboundedPreceding, -1)), F.lit(before.epoch))
    own = written.where((F.col("shard") == part.shard) & (F.col("uuid") == F.lit(uuid)))
    in_turn = own.select("shard", "offset", "number", "epoch", newest.alias("newest"))
    in_turn = in_turn.where(F.col("epoch") >= F.greatest(F.col("newest"), F.lit(before.epoch)))
    follows = F.lag("number", 1, before.last).over(earlier)
    return in_turn.select("number", follows.alias("follows")).where(F.col("number") != F.col("follows") + 1).count()


# ---- what must hold before anything is written --------------------------------------------------------------


def _check_start(
    spark: SparkSession,
    source: JournalSource,
    journal: JournalIdentity,
    starting: Mapping[int, int] | None,
    path: str,
    *,
    begun: bool,
) -> None:
    try:
        check_start(spark, source, journal, starting, begun=begun)
    except GapError as error:
        mend = "--from-trimmed begins an archive with what is left" if starting is None else "they are in no archive"
        raise GapError(f"{error.reason}; the archive {path} has not got them ({mend})") from error


def _require_same(manifest: Manifest, found: JournalIdentity, path: str) -> None:
    if manifest.uuid != found.uuid or len(manifest.parts) != found.shards:
        raise ArchiveError(
            f"{path} is the archive of a journal {manifest.journal} with uuid {manifest.uuid.hex()}, and the journal "
            f"now has uuid {found.uuid.hex()}: it was made anew; archive it to another place"
        )


def _require_own(marks: Mapping[int, Archive], found: Manifest | None, path: str, *, replace_other: bool) -> None:
    other = next((mark for mark in marks.values() if found is None or mark.archive != found.archive), None)
    if other is not None and not replace_other:
        raise ArchiveError(
            f"the journal is archived to {other.path}, and `trim` deletes what that archive has: go on there, or have "
            f"this one take its place with --replace, if {path} is to have all of it"
        )


def _behind(marks: Mapping[int, Archive], manifest: Manifest) -> bool:
    """Whether the marks say anything but the manifest: a job was killed between the two."""
    said = {shard: (mark.archive, mark.offset) for shard, mark in marks.items()}
    return said != {shard: (manifest.archive, end) for shard, end in manifest.ends().items()}
