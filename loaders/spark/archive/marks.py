"""The archive's marks: control rows that say, for each shard, which archive the journal has and how far it reaches.

`trim` deletes nothing at or above them. They are written when an archive is begun, at offset 0, and after each
manifest. So they may say less than the manifest, and never more. A journal has one archive, and the marks are that
archive's: a job that finds newer marks of another one has been replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from journal.errors import ArchiveError
from journal.topics.control_keys import archive_key, control_row
from journal.v1.journal_pb2 import Archive
from loaders.spark.read.source import Control, JournalSource, control
from loaders.spark.replay.sending import send
from loaders.spark.stored.manifest import Manifest


class ArchiveMarks:
    """The marks of one journal, as the job of one archive sees them; `found` has the marks that exist when the job
    begins."""

    def __init__(self, spark: SparkSession, source: JournalSource, path: str, found: Mapping[int, Archive]) -> None:
        self._spark = spark
        self._source = source
        self._path = path
        self._found = found
        self._displaced: frozenset[bytes] = frozenset()

    def begun_here(self) -> bytes | None:
        """The archive that was begun at this path and has no records yet, according to the marks."""
        begun = {mark.archive for mark in self._found.values() if mark.path == self._path and not mark.offset}
        return begun.pop() if len(begun) == 1 and self._other(self._found, begun) is None else None

    def claim(self, archive: bytes, *, replace_other: bool) -> None:
        """Raises ArchiveError if another archive has the marks, unless this one is to replace it."""
        other = self._other(self._found, {archive})
        if other is None:
            return
        if not replace_other:
            raise ArchiveError(
                f"the journal is archived to {other.path}, and `trim` deletes what that archive has: go on there, or "
                f"have this one take its place with --replace, if {self._path} is to have all of it"
            )
        self._displaced = frozenset(mark.archive for mark in self._found.values())

    def are_behind(self, manifest: Manifest) -> bool:
        """Whether the marks differ from the manifest: the archive has just begun, or a job was killed after it wrote
        the manifest and before it wrote the marks."""
        said = {shard: (mark.archive, mark.offset) for shard, mark in self._found.items()}
        return said != {shard: (manifest.archive, end) for shard, end in manifest.ends().items()}

    def write(self, manifest: Manifest) -> Control:
        """Write how far the archive reaches, which must be in a manifest. Returns what the control rows said before.
        Raises ArchiveError if another archive has replaced this one."""
        found = control(self._source)
        other = self._other(found.archives, {manifest.archive, *self._displaced})
        if other is not None:
            raise ArchiveError(
                f"the journal is archived to {other.path} by now (--replace), and `trim` waits for that one: this job "
                f"ends; what {self._path} has stays"
            )
        marks = {shard: self._mark(manifest, shard, part.end) for shard, part in sorted(manifest.parts.items())}
        name = self._source.journal
        send((control_row(name, archive_key(shard), mark) for shard, mark in marks.items()), self._source)
        self._displaced = frozenset()
        return found

    def _mark(self, manifest: Manifest, shard: int, end: int) -> Archive:
        return Archive(
            journal=manifest.uuid,
            shard=shard,
            offset=end,
            archive=manifest.archive,
            path=self._path,
            timestamp=manifest.written,
        )

    @staticmethod
    def _other(marks: Mapping[int, Archive], own: frozenset[bytes] | set[bytes]) -> Archive | None:
        return next((mark for mark in marks.values() if mark.archive not in own), None)
