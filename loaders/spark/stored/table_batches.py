"""The batches of records that were applied to the journal tables. A batch is identified by its offsets, and begins
where the batch before it ends.

    <path>/batches/<number>.begun    the batch's offsets, before it changes any table
    <path>/batches/<number>.json     the same, once it is in all tables

A file appears whole or not at all. A batch that was cut off is applied again first, with the same offsets, because some
tables may have it already. The newest batch and the one before it are kept, for readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from journal.errors import ConfigError

if TYPE_CHECKING:
    from loaders.spark.stored.files import Files

BATCHES = "batches"
Ends = Mapping[str, Mapping[int, int]]
"""For each topic and partition, the first offset that is not read yet."""
_BEGUN, _DONE = ".begun", ".json"
_KEPT_BATCHES = 2


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The records from `begin` to before `end`, of both topics and all partitions."""

    number: int
    begin: Ends
    end: Ends
    tables: Mapping[str, str] = field(default_factory=dict)
    """Names of the snapshots that belong together, in a format that has snapshots."""


class BatchLog:
    """The batches of the tables below a path."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def is_begun(self) -> bool:
        """Whether any batch was begun."""
        return bool(self._names(_BEGUN) or self._names(_DONE))

    def count(self) -> int:
        """Number of batches that are in all tables."""
        newest = self.newest()
        return 0 if newest is None else newest.number + 1

    def newest(self) -> TableBatch | None:
        """The newest batch that is in all tables; None before the first one."""
        names = self._names(_DONE)
        return self._read(names[-1]) if names else None

    def cut_off(self) -> TableBatch | None:
        """The batch that was begun after the newest one and may be in some tables.

        Raises ConfigError if it does not begin where the newest ends, because one of the two was restored from a
        backup.
        """
        begun, newest = self._names(_BEGUN), self.newest()
        last = self._read(begun[-1]) if begun else None
        if last is None or (newest is not None and last.number <= newest.number):
            return None
        if newest is not None and last.begin != newest.end:
            raise ConfigError(
                f"{self._files.place(BATCHES)} does not go together: batch {newest.number} ends at "
                f"{ends_text(newest.end)}, and batch {last.number} begins at {ends_text(last.begin)}; put back all "
                "that belongs to one moment, or keep the tables anew elsewhere"
            )
        return last

    def begin(self, batch: TableBatch) -> None:
        """Write the file that says that a batch has begun. This is done before the batch changes any table. A batch
        that was cut off has its file already."""
        if f"{batch.number:012d}{_BEGUN}" not in self._names(_BEGUN):
            self._write(batch, _BEGUN)

    def commit(self, batch: TableBatch) -> None:
        """Write the file that says that a batch is in all tables. Raises ConfigError if another job has written a later
        batch meanwhile; then no file of that job is deleted."""
        name = self._write(batch, _DONE)
        if self._names(_DONE)[-1] != name:
            self._files.delete(f"{BATCHES}/{name}")
            raise ConfigError(f"another job has gone on with the tables below {self._files.place('')}")
        for kind, kept in ((_DONE, _KEPT_BATCHES), (_BEGUN, 1)):
            for older in self._names(kind)[:-kept]:
                self._files.delete(f"{BATCHES}/{older}")

    def kept(self) -> list[TableBatch]:
        """The batches whose tables are kept."""
        return [self._read(name) for name in self._names(_DONE)[-_KEPT_BATCHES:]]

    def _names(self, kind: str) -> list[str]:
        return sorted(name for name in self._files.names(BATCHES) if name.endswith(kind) and name[0] != ".")

    def _write(self, batch: TableBatch, kind: str) -> str:
        name = f"{batch.number:012d}{kind}"
        told = {"batch": batch.number, "begin": batch.begin, "end": batch.end, "tables": batch.tables}
        self._files.write_new(f"{BATCHES}/{name}", json.dumps(told))
        return name

    def _read(self, name: str) -> TableBatch:
        found = self._files.told(f"{BATCHES}/{name}", "batch", "begin", "end", "tables")
        return TableBatch(found["batch"], _ends(found["begin"]), _ends(found["end"]), found["tables"])


def ends_text(ends: Ends) -> str:
    """Offsets as text for an error."""
    told = (f"{topic}[{partition}]@{offset}" for topic, of in ends.items() for partition, offset in of.items())
    return ", ".join(told) or "the beginning"


def _ends(found: Mapping[str, Mapping[str, int]]) -> Ends:
    return {topic: {int(partition): offset for partition, offset in of.items()} for topic, of in found.items()}
