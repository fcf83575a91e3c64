"""Reading an archive: the records that its manifests name, alone or with what the WAL has behind them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import ArchiveError
from loaders.spark.archive_frames import all_frames
from loaders.spark.manifest import MANIFEST_SCHEMA, Manifest, ManifestLog
from loaders.spark.readers import check_start
from loaders.spark.source import JournalIdentity, JournalSource, batch


def read_archive(spark: SparkSession, path: str, journal: str | None = None) -> DataFrame:
    """The archived records, as of now: docs/SPARK.md has the columns. Of all journals that the archive has, or of one.

    What no manifest names is not read: a job was killed before it counted. Raises MissingExtraError for an archive in
    Delta Lake and a session without.
    """
    root = path.rstrip("/")
    # manifests first: what they name is there
    named = read_manifests(spark, root, journal).select("journal", "batch")
    return all_frames(spark, root, journal).join(F.broadcast(named), ["journal", "batch"], "left_semi")


def read_manifests(spark: SparkSession, path: str, journal: str | None = None) -> DataFrame:
    """One row a batch, with what it has of each shard: docs/SPARK.md has the columns."""
    return spark.read.schema(MANIFEST_SCHEMA).json(f"{path.rstrip('/')}/manifest/{journal or '*'}/*.json")


def newest_manifest(spark: SparkSession, path: str, journal: str) -> Manifest:
    """Where the archive of a journal stands. Raises ArchiveError if it has nothing of it."""
    found = ManifestLog(spark, path, journal).newest()
    if found is None:
        raise ArchiveError(f"{path} has nothing of journal {journal}")
    return found


def as_records(archived: DataFrame, topic: str) -> DataFrame:
    """Archived records with Kafka's columns, as `source.batch` gives them."""
    return archived.select(
        "key",
        "value",
        F.lit(topic).alias("topic"),
        F.col("shard").alias("partition"),
        "offset",
        F.col("appended").alias("timestamp"),
    )


def joined(spark: SparkSession, source: JournalSource, journal: JournalIdentity, path: str) -> DataFrame:
    """The archive, and the committed WAL from where it ends, in Kafka's columns: no gap and no overlap.

    Raises ArchiveError for an archive of another journal, GapError if the WAL has been trimmed beyond the archive.
    """
    manifest = newest_manifest(spark, path, source.journal)
    if manifest.uuid != journal.uuid:
        raise ArchiveError(f"{path} is the archive of a journal {source.journal} with uuid {manifest.uuid.hex()}")
    starting = manifest.ends()
    check_start(spark, source, journal, starting)
    # newest first: what is archived meanwhile lies behind it
    archived = as_records(read_archive(spark, path, source.journal), source.wal)
    ends = F.create_map(*(F.lit(n) for pair in sorted(starting.items()) for n in pair))
    before = archived.where(F.col("offset") < ends[F.col("partition")])
    return before.unionByName(batch(spark, source, source.wal, starting=starting))
