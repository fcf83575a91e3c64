"""The place of journal tables: whose they are, which job keeps them, and up to when they have everything.

    <path>/journal.json        of which journal they are, and in which format
    <path>/writers/N-TOKEN     the job that keeps them: of the one that was started last, whose name is the greatest
    <path>/until/MS-TOKEN      ms since 1970: rows that were written before are read, or nothing had been read by then

Files appear under new names, and older ones are deleted behind them: no file system replaces one at once.

A row of the table topic that was deleted is gone for good once its tombstone is (`delete.retention.ms`): a job that did
not read that would keep the row for ever. The tombstone of a row that was read stays at least so long behind the moment
at which it was written, or, if the row was read behind it, behind that. So a job may go on as long as neither the
newest rows that it has, nor its beginning, whichever is later, is older than that.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from journal.errors import ConfigError
from loaders.spark.source import JournalIdentity
from loaders.spark.table_stores import Files, TableFormat

OFFSETS = "checkpoint/offsets"
"""Spark's: a file of a batch's number for each that was begun."""
_DESCRIPTION, _WRITERS, _UNTIL = "journal.json", "writers", "until"
_FORMAT = 1


class TablesPlace:
    """The files beside the tables below a path, as one job sees them."""

    def __init__(self, files: Files, path: str, *, now_ms: int) -> None:
        self._files = files
        self._path = path
        self._now_ms = now_ms
        self._token = secrets.token_hex(16)
        self._writer = ""
        self._until_ms = -1

    def open(self, name: str, journal: JournalIdentity, kept_as: TableFormat, retention_ms: int | None) -> bool:
        """Whether anything was read for these tables yet. Raises ConfigError for a place that is not this job's, or
        that it was away from too long: `retention_ms` is the table topic's."""
        files = self._files
        if not files.exists(_DESCRIPTION):
            # a job that was killed in its first moment leaves a file with a dot
            if any(not found.startswith(".") for found in files.names("")):
                raise ConfigError(
                    f"{self._path} has other things in it, and no journal.json: keep the tables elsewhere"
                )
            told = {"format": _FORMAT, "journal": name, "uuid": journal.uuid.hex(), "tables": kept_as.value}
            files.write_new(_DESCRIPTION, json.dumps(told))
        self._check_description(journal, kept_as)
        begun = any(found.isdigit() for found in files.names(OFFSETS))
        if not begun:
            if files.exists("progress"):
                raise ConfigError(
                    f"{self._path} has tables and no checkpoint to go on from: delete it and keep them anew"
                )
            self.has_all_until(self._now_ms)
        elif until := self._names(_UNTIL):
            self._until_ms = int(until[-1].partition("-")[0])
            self._check_away(retention_ms)
        elif retention_ms is not None:
            raise ConfigError(
                f"{self._path} does not say up to when it has everything, as an earlier kafka-journal left it: "
                "delete it and keep the tables anew"
            )
        return begun

    def take(self) -> None:
        """From now on this job keeps the tables, and no other one that does."""
        before = self._names(_WRITERS)
        number = int(before[-1].partition("-")[0]) + 1 if before else 1
        self._writer = f"{number:09d}-{self._token}"
        self._appear(_WRITERS, self._writer, before)

    def is_taken(self) -> bool:
        """Whether another job has taken it since."""
        return self._names(_WRITERS)[-1:] != [self._writer]

    def require(self) -> None:
        """Raises ConfigError once another job has taken the place."""
        if self.is_taken():
            raise ConfigError(self.taken())

    def taken(self) -> str:
        """What to say once another job has."""
        return f"another job keeps the tables below {self._path} now: one at a time may, end one of the two"

    def disturbed(self) -> str:
        """What to say when another job, or somebody else, has changed what this one was about to."""
        return f"a job that has ended since, or somebody else, changed the tables below {self._path} too: start again"

    def has_all_until(self, ms: int) -> None:
        """All rows that were written before were read."""
        if ms > self._until_ms:
            self._appear(_UNTIL, f"{ms:015d}-{self._token}", self._names(_UNTIL))
            self._until_ms = ms

    def _names(self, directory: str) -> list[str]:
        """In order; without what writes that were cut off have left."""
        return sorted(name for name in self._files.names(directory) if not name.startswith("."))

    def _appear(self, directory: str, name: str, before: Sequence[str]) -> None:
        self._files.write_new(f"{directory}/{name}", "")
        for older in before:
            self._files.delete(f"{directory}/{older}")

    def _check_description(self, journal: JournalIdentity, kept_as: TableFormat) -> None:
        path, found = self._path, json.loads(self._files.text(_DESCRIPTION))
        if found["format"] != _FORMAT:
            raise ConfigError(f"{path} has tables of format {found['format']}, this kafka-journal keeps {_FORMAT}")
        if found["uuid"] != journal.uuid.hex():
            raise ConfigError(
                f"{path} has the tables of journal {found['journal']} with uuid {found['uuid']}: "
                "keep this one's elsewhere"
            )
        if found["tables"] != kept_as.value:
            raise ConfigError(f"{path} has tables in format {found['tables']}: go on with --format {found['tables']}")

    def _check_away(self, retention_ms: int | None) -> None:
        away_ms = self._now_ms - self._until_ms
        if retention_ms is not None and away_ms > retention_ms - retention_ms // 10:
            raise ConfigError(
                f"{self._path} has what was there {away_ms // 3_600_000} hours ago, and deletions may be gone from the "
                "table topic by now: delete it and keep the tables anew"
            )
