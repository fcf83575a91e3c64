"""Readers of an archive: the records that its manifests name, alone or followed by the rest of the WAL."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import ArchiveError
from loaders.spark.read.frames import with_operations
from loaders.spark.read.loading import load
from loaders.spark.read.source import Control, JournalIdentity, JournalSource
from loaders.spark.read.start import readable_start
from loaders.spark.stored.archive_frames import all_frames
from loaders.spark.stored.files import Files
from loaders.spark.stored.manifest import MANIFEST_SCHEMA, Manifest, ManifestLog


def read_archive(spark: SparkSession, path: str, journal: str | None = None) -> DataFrame:
    """The records archived up to now, of one journal or of all journals in the archive; docs/SPARK.md has the columns.

    A record that no manifest names is not read, because its job was killed before the record counted. Raises
    ArchiveError for an archive of another release, and MissingExtraError for one in Delta Lake if the session lacks it.
    """
    root = path.rstrip("/")
    for name in Files(spark, root).names("manifest") if journal is None else [journal]:
        ManifestLog(spark, root, name).newest()
    # manifests are read first, so that all files that they name exist
    named = read_manifests(spark, root, journal).select("journal", "batch")
    return all_frames(spark, root, journal).join(F.broadcast(named), ["journal", "batch"], "left_semi")


def read_manifests(spark: SparkSession, path: str, journal: str | None = None) -> DataFrame:
    """One row for each batch, with its part of each shard; docs/SPARK.md has the columns."""
    return spark.read.schema(MANIFEST_SCHEMA).json(f"{path.rstrip('/')}/manifest/{journal or '*'}/*.json")


def newest_manifest(spark: SparkSession, path: str, journal: str) -> Manifest:
    """The newest manifest of a journal's archive. Raises ArchiveError if the archive has nothing of that journal."""
    found = ManifestLog(spark, path, journal).newest()
    if found is None:
        raise ArchiveError(f"{path} has nothing of journal {journal}")
    return found


def archive_path(source: JournalSource, control: Control) -> str:
    """Where the journal is archived, according to its marks. Raises ArchiveError if it is not archived, or in two
    places."""
    paths = sorted({mark.path for mark in control.archives.values()})
    if len(paths) != 1:
        told = f"is archived to {' and '.join(paths)}" if paths else "has no archive"
        raise ArchiveError(f"journal {source.journal} {told}: name the archive's path")
    return paths[0]


def require_beginning(spark: SparkSession, path: str, journal: str) -> None:
    """Raises ArchiveError if the archive of a journal does not begin with every shard's first frame."""
    part = F.col("part")
    parts = read_manifests(spark, path, journal).select("number", F.explode("shards").alias("part"))
    firsts = parts.where(part["records"] > 0).groupBy(part["shard"]).agg(F.min_by("part", "number").alias("first"))
    first = F.col("first")
    late = firsts.where((first["start"] > 0) & (first["first"] != 1)).select("first.*").orderBy("shard").collect()
    if late:
        told = "; ".join(f"shard {row['shard']} begins at offset {row['start']}" for row in late)
        raise ArchiveError(
            f"{path} has journal {journal} without its beginning ({told}): it was begun after a trim "
            "(--from-trimmed), and what was there by then is not in it"
        )


def joined(spark: SparkSession, source: JournalSource, journal: JournalIdentity, path: str) -> DataFrame:
    """The table `entries` of the archive, and of the committed WAL from the archive's end, without a gap or an overlap.

    Raises ArchiveError for an archive of another journal or without its beginning, and GapError if the WAL has been
    trimmed beyond the archive.
    """
    manifest = newest_manifest(spark, path, source.journal)
    if manifest.uuid != journal.uuid:
        raise ArchiveError(f"{path} is the archive of a journal {source.journal} with uuid {manifest.uuid.hex()}")
    require_beginning(spark, path, source.journal)
    starting = manifest.ends()
    readable_start(source, journal, starting, mend=f"the archive {path} ends before that")
    # the newest manifest is read first; records archived after that are read from the WAL
    archived = read_archive(spark, path, source.journal)
    ends = F.create_map(*(F.lit(n) for pair in sorted(starting.items()) for n in pair))
    before = with_operations(archived.where(F.col("offset") < ends[F.col("shard")]), source.wal, journal)
    return before.unionByName(load(spark, source, "entries", starting=starting))
