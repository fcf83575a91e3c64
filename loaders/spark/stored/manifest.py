"""The manifests of an archive: one for each batch, numbered in sequence. A manifest names the batch's files, where each
shard stands, and what operators had skipped by then. If operators have had more records skipped and no record is new,
the next manifest belongs to a batch without records.

    <path>/manifest/<journal>/000000000001.json, …

A batch is in the archive once its manifest exists. A manifest appears whole or not at all: it is written under another
name and renamed, which fails if its number exists. All I/O goes through Hadoop's file systems, as Spark's own does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from journal.errors import ArchiveError
from loaders.spark.session.failures import java_causes
from loaders.spark.stored.files import Files

FORMAT = 3
_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A batch's part of one shard: the committed records from offset `start` to before `end`.

    `last` and `epoch` are the number and the epoch of the newest frame before `end`, in this batch or an earlier one.
    """

    shard: int
    start: int
    end: int
    records: int = 0
    frames: int = 0
    """Frames of this journal; the other records are none."""
    first: int = 0
    """The lowest frame number in the batch, 0 if it has none."""
    last: int = 0
    epoch: int = 0
    epochs: tuple[int, ...] = ()
    bytes: int = 0
    """Bytes of the records' values."""
    faults: int = 0
    """Frames that do not follow their predecessor. The WAL itself lacks or repeats a frame there."""
    files: tuple[str, ...] = ()
    """File names relative to the archive."""

    def nothing_more(self) -> ShardPart:
        """The part of this shard in the next batch, if that batch has no records of the shard."""
        return ShardPart(self.shard, self.end, self.end, last=self.last, epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One batch of one journal's archive; `parts` has all shards. `batch` is the batch's name in the frames."""

    archive: bytes
    journal: str
    uuid: bytes
    number: int
    batch: str
    written: int
    """The time in ms since 1970."""
    parts: Mapping[int, ShardPart] = field(default_factory=dict)
    skipped: tuple[tuple[int, int], ...] = ()
    """The WAL records (shard, offset) that operators had skipped by then, in order; some may not be archived yet."""

    def ends(self) -> dict[int, int]:
        """The first offset of each shard that is not in the archive."""
        return {shard: part.end for shard, part in self.parts.items()}

    def skipped_and_archived(self) -> list[tuple[int, int]]:
        """The archive's records (shard, offset) that operators had skipped by then, in order."""
        ends = self.ends()
        return [(shard, offset) for shard, offset in self.skipped if offset < ends.get(shard, 0)]

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "archive": self.archive.hex(),
                "journal": self.journal,
                "uuid": self.uuid.hex(),
                "number": self.number,
                "batch": self.batch,
                "written": self.written,
                "shards": [asdict(self.parts[shard]) for shard in sorted(self.parts)],
                "skipped": [{"shard": shard, "offset": offset} for shard, offset in self.skipped],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str, place: str) -> Manifest:
        """A parsed manifest. Raises ArchiveError, which names `place`, for a file that is no manifest or has another
        format."""
        try:
            found: dict[str, Any] = json.loads(text)
            if found["format"] != FORMAT:
                raise ArchiveError(
                    f"{place} has format {found['format']}, this kafka-journal reads {FORMAT}: archive the journal to "
                    "another place"
                )
            parts = [
                ShardPart(**part | {"epochs": tuple(part["epochs"]), "files": tuple(part["files"])})
                for part in found["shards"]
            ]
            return cls(
                bytes.fromhex(found["archive"]),
                found["journal"],
                bytes.fromhex(found["uuid"]),
                found["number"],
                found["batch"],
                found["written"],
                {part.shard: part for part in parts},
                tuple((place["shard"], place["offset"]) for place in found.get("skipped", ())),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{place} is no manifest of an archive: {error!r}") from error


MANIFEST_SCHEMA = (
    "format int, archive string, journal string, uuid string, number bigint, batch string, written bigint, "
    "shards array<struct<shard: int, start: bigint, end: bigint, records: bigint, frames: bigint, first: bigint, "
    "last: bigint, epoch: bigint, epochs: array<bigint>, bytes: bigint, faults: bigint, files: array<string>>>, "
    "skipped array<struct<shard: int, offset: bigint>>"
)
"""The schema with which Spark's JSON reader reads manifests."""


class ManifestLog:
    """The manifests of one journal in one archive."""

    def __init__(self, spark: SparkSession, path: str, journal: str) -> None:
        self._files = Files(spark, path)
        self._directory = f"manifest/{journal}"

    def newest(self) -> Manifest | None:
        """The manifest with the highest number; None if the archive has nothing of the journal yet."""
        names = self._files.names(self._directory)
        numbers = [name for name in names if name.endswith(".json") and name[:-5].isdigit()]
        if not numbers:
            return None
        name = f"{self._directory}/{max(numbers)}"
        return Manifest.from_json(self._files.text(name), self._files.place(name))

    def commit(self, manifest: Manifest) -> None:
        """Make the manifest appear. Raises ArchiveError if its number exists, as another job then writes to this
        archive."""
        name = f"{self._directory}/{manifest.number:012d}.json"
        try:
            self._files.write_new(name, manifest.to_json())
        except Py4JJavaError as error:
            if any(cause.name == _EXISTS for cause in java_causes(error)):
                raise ArchiveError(
                    f"another job has written {self._files.place(name)}: one job at a time may write to an archive; "
                    "start again"
                ) from error
            raise
