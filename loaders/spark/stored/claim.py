"""A job's claim on the data at a place. If several jobs run, only the one that was started last continues with the
data.

    <place>/writers/N-TOKEN      the claims; the greatest name is the one that counts

Files appear under new names, and then older ones are deleted, because no file system replaces a file in one step.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from loaders.spark.stored.files import Files

_WRITERS = "writers"


class PlaceClaim:
    """One job's claim on a place."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.token = secrets.token_hex(16)
        """A token that no other job has."""
        self.writer = ""
        """The job's name, greater than those of jobs that were started earlier; empty until the place is taken."""

    def take(self) -> None:
        """Take the place for this job. A job that took it earlier finds that `is_taken` is true."""
        before = names_of(self._files, _WRITERS)
        number = int(before[-1].partition("-")[0]) + 1 if before else 1
        self.writer = f"{number:09d}-{self.token}"
        appear(self._files, _WRITERS, self.writer, before)

    def is_taken(self) -> bool:
        """Whether another job has taken the place since."""
        return names_of(self._files, _WRITERS)[-1:] != [self.writer]


def names_of(files: Files, directory: str) -> list[str]:
    """The sorted names of the files in a directory, without those that interrupted writes have left."""
    return sorted(name for name in files.names(directory) if not name.startswith("."))


def appear(files: Files, directory: str, name: str, before: Sequence[str]) -> None:
    """Write an empty file with a new name, and then delete the older files that `before` names."""
    files.write_new(f"{directory}/{name}", "")
    for older in before:
        files.delete(f"{directory}/{older}")
