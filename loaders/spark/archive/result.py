"""The report of an archive's run: how much it wrote, where the archive stands, and which faults it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from loaders.spark.read.frames import dead_letters, with_operations
from loaders.spark.read.source import JournalIdentity
from loaders.spark.stored.manifest import Manifest

Place = tuple[str, int, int]
"""The topic, partition and offset of a record."""


@dataclass(slots=True)
class ArchiveResult:
    """The result of a run, and the state of the archive after it."""

    path: str
    journal: str
    batches: int = 0
    records: int = 0
    bytes: int = 0
    foreign: int = 0
    """Records that are no frames of this journal. They are archived unchanged, but no operations are read from them."""
    first_foreign: Place | None = None
    """The first foreign record, in order of place; None if there is none."""
    damaged: int | None = None
    """Frames of this journal whose content stops a worker, archived as they are; None if the run did not check
    operations."""
    first_damaged: Place | None = None
    faults: int = 0
    """Frames that do not follow their predecessor."""
    skipped: int = 0
    """Records in the whole archive that operators have had skipped."""
    ends: dict[int, int] = field(default_factory=dict)
    """The first offset of each shard that is not archived."""

    def count(self, manifest: Manifest, seen: Sequence[Row], topic: str) -> None:
        """Add a batch that counts now, with the rows that say what it has of each shard."""
        self.batches += 1
        self.ends = manifest.ends()
        for part in manifest.parts.values():
            self.records += part.records
            self.bytes += part.bytes
            self.foreign += part.records - part.frames
            self.faults += part.faults
        firsts = [(topic, row["shard"], row["first_foreign"]) for row in seen if row["first_foreign"] is not None]
        self.first_foreign = _first(self.first_foreign, firsts)

    def count_damaged(self, written: DataFrame, journal: JournalIdentity, topic: str) -> None:
        """Count the damaged frames of a batch, which is in the archive's columns."""
        own = F.col("uuid").eqNullSafe(F.lit(journal.uuid))
        damaged = dead_letters(with_operations(written.where(own), topic, journal))
        first = F.min(F.struct("topic", "partition", "offset")).alias("first")
        (found,) = damaged.agg(F.count("*").alias("count"), first).collect()
        self.damaged = (self.damaged or 0) + found["count"]
        self.first_damaged = _first(self.first_damaged, [] if found["first"] is None else [tuple(found["first"])])


def _first(one: Place | None, others: Iterable[Place]) -> Place | None:
    return min(filter(None, (one, *others)), default=None)
