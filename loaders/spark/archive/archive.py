"""The archive: a streaming job that writes a journal's committed WAL to Parquet or Delta Lake, every record once.

    <path>/frames/… or <path>/table     the records: `archive_frames`
    <path>/manifest/NAME/<number>.json

A batch first writes its records, where no other batch has any, and checks them. Then it writes its manifest, which
makes them count, and then the archive's mark of each shard into the control rows, which lets `trim` delete
(`archive_marks`). A job that starts reads the newest manifest, and nothing else, to know where to go on: it has no
state of its own, and Spark's checkpoint is thrown away after each run. A job that is killed before the manifest leaves
files that nobody reads, and the next run writes that part again (batches that are in a Delta table get their manifests
from the next run). After a kill behind the manifest, the next run writes the marks.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ArchiveError, CorruptionError
from loaders.spark.archive.marks import ArchiveMarks
from loaders.spark.archive.numbers import checked_part
from loaders.spark.archive.result import ArchiveResult
from loaders.spark.read.archived import read_archive
from loaders.spark.read.loading import load_stream
from loaders.spark.read.readers import skipped_places
from loaders.spark.read.source import EARLIEST, JournalIdentity, JournalSource, control, identity
from loaders.spark.read.start import readable_start
from loaders.spark.stored.archive_frames import Written, open_frames
from loaders.spark.stored.manifest import Manifest, ManifestLog, ShardPart
from loaders.spark.stored.micro_batches import run_micro_batches
from loaders.spark.stored.table_stores import TableFormat

BATCH_OFFSETS_MAX = 200_000
"""Offsets of all shards in one batch. A batch that is cut off is written again."""


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
    kept_as: TableFormat = TableFormat.PARQUET,
    check_operations: bool = False,
    told: Callable[[Manifest], None] | None = None,
    stop: threading.Event | None = None,
) -> ArchiveResult:
    """Archive the committed WAL into `path` (in any file system of Hadoop's). With `once` this goes to the WAL's end as
    of now; otherwise it writes a batch every `every_s` until `stop` is set. `told` is called after each batch.

    `replace_other`: the journal was archived elsewhere, and from now on `trim` waits for this archive instead.
    `from_trimmed`: begin a new archive with what is left of a trimmed WAL. `kept_as` cannot be changed later.
    `check_operations`: parse everything that was written and count what is damaged, which takes longer.

    Raises ArchiveError for an archive of another journal or another job, ConfigError for an archive in another format,
    TopicError for a journal that does not exist, and GapError if records were trimmed that are not in the archive; it
    names them.
    """
    to_each = told or (lambda _manifest: None)
    job = _ArchiveJob(spark, source, path, kept_as, check_operations, to_each, stop or threading.Event())
    job.open(replace_other=replace_other, from_trimmed=from_trimmed)
    return job.run(once=once, every_s=every_s, max_offsets=max_offsets)


class _ArchiveJob:
    """One run of the archive. Its micro-batches come one at a time.

    It has many attributes because every batch needs them: the arguments of `archive` (source, path, format, checks),
    the parts of the archive (frames, manifests, marks), and how the run ends and reports.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: JournalSource,
        path: str,
        kept_as: TableFormat,
        check_operations: bool,
        told: Callable[[Manifest], None],
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._source = source
        self._path = path.rstrip("/")
        self._kept_as = kept_as
        self._check_operations = check_operations
        self._told = told
        self._stop = stop
        self._log = ManifestLog(spark, self._path, source.journal)
        self.result = ArchiveResult(self._path, source.journal, damaged=0 if check_operations else None)

    # ---- where to go on --------------------------------------------------------------------------------------------

    def open(self, *, replace_other: bool, from_trimmed: bool) -> None:
        """Read where the archive stands, and check that it belongs to this journal. Raises the errors of `archive`."""
        found_control = control(self._source)
        self._identity, begun = found_control.identity, found_control.begun
        self._marks = ArchiveMarks(self._spark, self._source, self._path, found_control.archives)
        found = self._log.newest()
        if found is not None:
            _require_same(found, self._identity, self._path)
        self._manifest = found or self._no_batch(self._marks.begun_here() or secrets.token_bytes(16))
        self._marks.claim(self._manifest.archive, replace_other=replace_other)
        uuid = self._identity.uuid
        self._frames = open_frames(self._spark, self._path, self._source.journal, uuid, self._kept_as)
        self._from_trimmed = from_trimmed
        standing = self._manifest
        while (left_over := self._frames.left_over(self._manifest.number + 1)) is not None:
            self._keep(left_over.number, left_over.batch, left_over.written, left_over=True)
        newest = self._manifest
        unread = EARLIEST if from_trimmed else 0
        starting: Mapping[int, int] = {shard: end or unread for shard, end in newest.ends().items()}
        if newest.number or not from_trimmed:
            asked = starting if newest.number else None
            starting = _readable_start(self._spark, self._source, self._identity, asked, self._path, begun=begun)
        self._starting = starting
        self.result.ends = newest.ends()
        if newest is standing:
            if self._marks.are_behind(newest):
                self._marks.write(newest)
            self._note_skipped(found_control.skip_requests)

    def _no_batch(self, archive: bytes) -> Manifest:
        """The manifest of an archive that has begun but has no batch yet."""
        no_parts = {shard: ShardPart(shard, 0, 0) for shard in range(self._identity.shards)}
        return Manifest(archive, self._source.journal, self._identity.uuid, 0, "", int(time.time() * 1000), no_parts)

    # ---- the query -------------------------------------------------------------------------------------------------

    def run(self, *, once: bool, every_s: float, max_offsets: int) -> ArchiveResult:
        run_micro_batches(
            load_stream(self._spark, self._source, "wal", starting=self._starting, max_offsets=max_offsets),
            "archive",
            self._source.journal,
            self._archive,
            once=once,
            every_s=every_s,
            stop=self._stop,
        )
        self.result.skipped = len(self._manifest.skipped_and_archived())
        return self.result

    def _archive(self, records: DataFrame) -> None:
        number = self._manifest.number + 1
        batch = self._frames.new_batch(number)
        written = self._frames.write(records, batch)
        if written is None:
            return
        try:
            self._keep(number, batch, written)
        finally:
            self._frames.forget(written)

    def _keep(self, number: int, batch: str, written: Written, *, left_over: bool = False) -> None:
        """Check a batch that is written, and write its manifest, which makes it count."""
        before = self._manifest
        seen = self._seen(written.rows)
        parts = {row["shard"]: self._part(row, left_over=left_over) for row in seen}
        found = sum(part.records for part in parts.values())
        if written.records is not None and found != written.records:
            raise ArchiveError(
                f"batch {batch} wrote {written.records} records and {found} are in {self._path}: another job writes "
                "there; one job at a time may write to an archive"
            )
        self._check_same_journal(parts)
        parts = self._checked_numbers(written.rows, parts)
        # a shard without new records stays where it was
        parts = {shard: parts.get(shard) or part.nothing_more() for shard, part in before.parts.items()}
        written_ms = int(time.time() * 1000)
        if not left_over:
            self._frames.commit(number, batch, written)
        manifest = replace(before, number=number, batch=batch, written=written_ms, parts=parts)
        self._log.commit(manifest)
        self._manifest = manifest
        told = self._marks.write(manifest)
        self.result.count(manifest, seen, self._source.wal)
        if self._check_operations:
            self.result.count_damaged(written.rows, self._identity, self._source.wal)
        self._told(manifest)
        self._note_skipped(told.skip_requests)

    def _note_skipped(self, requests: frozenset[tuple[int, int]]) -> None:
        """Write a manifest that names the records that operators have had skipped, so that readers of the archive need
        not read the journal, which may be gone. The table is read only if there is a request that no manifest names."""
        before = self._manifest
        if not before.number or requests <= set(before.skipped):
            return
        skipped = tuple(skipped_places(self._spark, self._source))
        if skipped == before.skipped:
            return
        number, written_ms = before.number + 1, int(time.time() * 1000)
        parts = {shard: part.nothing_more() for shard, part in before.parts.items()}
        batch = self._frames.new_batch(number)
        manifest = replace(before, number=number, batch=batch, written=written_ms, parts=parts, skipped=skipped)
        self._log.commit(manifest)
        self._manifest = manifest

    # ---- what was written ------------------------------------------------------------------------------------------

    def _seen(self, written: DataFrame) -> list[Row]:
        """The facts about each shard in the batch, read from what was written."""
        # null-safe comparison, because a record that is no frame has no uuid
        own = F.col("uuid").eqNullSafe(F.lit(self._identity.uuid))
        found = written.groupBy("shard").agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.count(F.when(own, 1)).alias("frames"),
            F.min(F.when(~own, F.col("offset"))).alias("first_foreign"),
            F.min(F.when(own, F.col("number"))).alias("first"),
            F.max(F.when(own, F.struct("epoch", "number"))).alias("newest"),
            F.array_sort(F.collect_set(F.when(own, F.col("epoch")))).alias("epochs"),
            F.sum("bytes").alias("bytes"),
            self._frames.files().alias("files"),
        )
        return found.collect()

    def _part(self, row: Row, *, left_over: bool) -> ShardPart:
        before = self._manifest.parts[row["shard"]]
        # the first frame shows how the run that left this batch had begun
        begins_late = self._from_trimmed or (left_over and row["first"] != 1)
        start = row["first_offset"] if begins_late and not before.end else before.end
        if row["first_offset"] < before.end:
            raise CorruptionError(
                f"the archive has everything below offset {before.end}, and Spark read it again",
                topic=self._source.wal,
                partition=row["shard"],
                offset=row["first_offset"],
            )
        newest = row["newest"]
        # a frame of an older epoch after a newer marker does not count
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
        """Raises ArchiveError if the batch has records that are no frames of this journal because the journal was
        deleted and created again. If the journal is still the same one, such records are archived as foreign
        records."""
        if any(part.records > part.frames for part in parts.values()):
            _require_same(self._manifest, identity(self._source), self._path)

    def _checked_numbers(self, written: DataFrame, parts: dict[int, ShardPart]) -> dict[int, ShardPart]:
        """The batch's part of each shard, with the number of its faults. Raises GapError for a WAL that began anew."""
        skipped = cache(lambda: skipped_places(self._spark, self._source))
        return {shard: self._checked_part(written, part, skipped) for shard, part in parts.items()}

    def _checked_part(
        self, written: DataFrame, part: ShardPart, skipped: Callable[[], Sequence[tuple[int, int]]]
    ) -> ShardPart:
        own = (F.col("shard") == part.shard) & (F.col("uuid") == F.lit(self._identity.uuid))
        return checked_part(
            part,
            self._manifest.parts[part.shard],
            written.where(own),
            lambda: read_archive(self._spark, self._path, self._source.journal).where(own),
            lambda: [offset for shard, offset in skipped() if shard == part.shard],
            self._source.wal,
        )


# ---- what must hold before anything is written --------------------------------------------------------------


def _readable_start(
    spark: SparkSession,
    source: JournalSource,
    journal: JournalIdentity,
    starting: Mapping[int, int] | None,
    path: str,
    *,
    begun: bool,
) -> Mapping[int, int]:
    mend = "--from-trimmed begins an archive with what is left"
    if starting is not None:
        mend = f"the archive {path} has not got them: --from-trimmed --replace begins another one with what is left"
    return readable_start(source, journal, starting, begun=begun, mend=mend)


def _require_same(manifest: Manifest, found: JournalIdentity, path: str) -> None:
    if manifest.uuid != found.uuid or len(manifest.parts) != found.shards:
        raise ArchiveError(
            f"{path} is the archive of a journal {manifest.journal} with uuid {manifest.uuid.hex()}, and the journal "
            f"now has uuid {found.uuid.hex()}: it was made anew; archive it to another place"
        )
