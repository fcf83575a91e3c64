"""The place of journal tables: which journal they belong to, which job keeps them, and the time up to which they have
everything.

    <path>/journal.json        the journal and the format of the tables
    <path>/writers/…           the job that keeps them: `claim`
    <path>/until/MS-N-TOKEN    ms since 1970: all rows that were written before are read, or no row was read by then;
                               and the number of batches that the tables had

A deleted row of the table topic leaves no trace once its tombstone is gone (`delete.retention.ms`): a job that has not
read the tombstone would keep the row for ever. The tombstone stays at least that long after the row was written, if the
row was read before the tombstone was written, and otherwise after it was read. So a job may go on as long as its newest
rows or its beginning, whichever is later, are not older than that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from journal.errors import ConfigError
from loaders.spark.read.source import JournalIdentity
from loaders.spark.stored.claim import PlaceClaim, appear, names_of
from loaders.spark.stored.files import Files
from loaders.spark.stored.table_batches import BATCHES, BatchLog
from loaders.spark.stored.table_stores import TableFormat

TABLES = ("messages", "in_doubt", "lives", "dead_letters")
"""The tables that people query."""
ALL_TABLES = (*TABLES, "rows", "progress")
"""All tables, including those from which the job continues. The first batch makes all of them."""
_DESCRIPTION, _UNTIL = "journal.json", "until"
_FORMAT = 3


def described(files: Files, path: str) -> Mapping[str, Any]:
    """Which journal the tables below `path` belong to, and their format. Raises ConfigError for tables of another
    release."""
    found = files.told(_DESCRIPTION, "format")
    if found["format"] != _FORMAT:
        raise ConfigError(
            f"{path} has tables of format {found['format']}, this kafka-journal keeps {_FORMAT}: keep the tables "
            "anew elsewhere"
        )
    return found


def is_described(files: Files, path: str) -> bool:
    """Whether there are tables below `path`. Raises ConfigError for tables of another release."""
    return files.exists(_DESCRIPTION) and bool(described(files, path))


class TablesPlace:
    """The files beside the tables below a path, as one job sees them."""

    def __init__(self, files: Files, path: str, *, now_ms: int) -> None:
        self._files = files
        self._path = path
        self._now_ms = now_ms
        self._batches = BatchLog(files)
        self._claim = PlaceClaim(files)
        self._until_ms = -1

    def open(self, name: str, journal: JournalIdentity, kept_as: TableFormat, retention_ms: int | None) -> bool:
        """Open the place, and return whether records were read for these tables before. Raises ConfigError for a place
        that is not this job's, or if the job was away too long: `retention_ms` is the table topic's."""
        files = self._files
        if not files.exists(_DESCRIPTION):
            # a killed job may leave a file whose name begins with a dot
            if any(not found.startswith(".") for found in files.names("")):
                raise ConfigError(
                    f"{self._path} has other things in it, and no journal.json: keep the tables elsewhere"
                )
            told = {"format": _FORMAT, "journal": name, "uuid": journal.uuid.hex(), "tables": kept_as.value}
            files.write_new(_DESCRIPTION, json.dumps(told))
        self._check_description(journal, kept_as)
        begun = self._batches.is_begun()
        self._check_whole(begun=begun)
        if not begun:
            self.has_all_until(self._now_ms)
        elif until := names_of(files, _UNTIL):
            self._check_until(until[-1], retention_ms)
        elif retention_ms is not None:
            raise ConfigError(
                f"{self._path} does not say up to when it has everything, as an earlier kafka-journal left it: "
                "delete it and keep the tables anew"
            )
        return begun

    def take(self) -> None:
        """Take the place. From now on this job alone keeps the tables."""
        self._claim.take()

    def is_taken(self) -> bool:
        """Whether another job has taken the place."""
        return self._claim.is_taken()

    def require(self) -> None:
        """Raises ConfigError once another job has taken the place."""
        if self.is_taken():
            raise ConfigError(self.taken())

    def taken(self) -> str:
        """The error that says that another job has taken the place."""
        return f"another job keeps the tables below {self._path} now: one at a time may, end one of the two"

    def disturbed(self) -> str:
        """The error when another job, or somebody else, has changed the files that this job was about to change."""
        return f"a job that has ended since, or somebody else, changed the tables below {self._path} too: start again"

    def has_all_until(self, ms: int) -> None:
        """Store that all rows of the table topic that were written before the time `ms` have been read, so that the
        tables have them."""
        if ms > self._until_ms:
            name = f"{ms:015d}-{self._batches.count():012d}-{self._claim.token}"
            appear(self._files, _UNTIL, name, names_of(self._files, _UNTIL))
            self._until_ms = ms

    def _check_description(self, journal: JournalIdentity, kept_as: TableFormat) -> None:
        path, found = self._path, described(self._files, self._path)
        if found["uuid"] != journal.uuid.hex():
            raise ConfigError(
                f"{path} has the tables of journal {found['journal']} with uuid {found['uuid']}: "
                "keep this one's elsewhere"
            )
        if found["tables"] != kept_as.value:
            raise ConfigError(f"{path} has tables in format {found['tables']}: go on with --format {found['tables']}")

    def _check_whole(self, *, begun: bool) -> None:
        """Raises ConfigError if tables are missing. A batch that was cut off may have made only some of them."""
        missing = [table for table in ALL_TABLES if not self._files.exists(table)]
        if not begun and len(missing) < len(ALL_TABLES):
            raise ConfigError(
                f"{self._path} has tables, and no {BATCHES} that say where to go on: delete it and keep them anew"
            )
        if missing and self._batches.newest() is not None:
            raise ConfigError(
                f"{self._path} has {BATCHES}, and tables that belong to them are gone ({', '.join(missing)}): delete "
                "it and keep the tables anew"
            )

    def _check_until(self, name: str, retention_ms: int | None) -> None:
        until, then, _ = name.split("-", 2)
        self._until_ms = int(until)
        if (batches := self._batches.count()) < int(then):
            raise ConfigError(
                f"{self._path}/{_UNTIL} is of {int(then)} batches, and {self._path}/{BATCHES} has {batches}: put back "
                "all that belongs to one moment, or keep the tables anew elsewhere"
            )
        away_ms = self._now_ms - self._until_ms
        if retention_ms is not None and away_ms > retention_ms - retention_ms // 10:
            raise ConfigError(
                f"{self._path} has what was there {away_ms // 3_600_000} hours ago, and deletions may be gone from the "
                "table topic by now: delete it and keep the tables anew"
            )
