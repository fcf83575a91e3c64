"""Which of several jobs goes on with what is at a place: the one that was started last.

    <place>/writers/N-TOKEN      that job: the greatest name

Files appear under new names, and older ones are deleted behind them: no file system replaces one at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from loaders.spark.stored.files import Files

_WRITERS = "writers"


class Claim:
    """What one job has of the place."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.token = secrets.token_hex(16)
        """No other job has it."""
        self.writer = ""
        """The job's name, greater than those of jobs that were started before; empty until the place is taken."""

    def take(self) -> None:
        """From now on the place is this job's, and no other one's that had it."""
        before = names_of(self._files, _WRITERS)
        number = int(before[-1].partition("-")[0]) + 1 if before else 1
        self.writer = f"{number:09d}-{self.token}"
        appear(self._files, _WRITERS, self.writer, before)

    def is_taken(self) -> bool:
        """Whether another job has taken it since."""
        return names_of(self._files, _WRITERS)[-1:] != [self.writer]


def names_of(files: Files, directory: str) -> list[str]:
    """In order; without what writes that were cut off have left."""
    return sorted(name for name in files.names(directory) if not name.startswith("."))


def appear(files: Files, directory: str, name: str, before: Sequence[str]) -> None:
    """A file of a new name in the place of those before it."""
    files.write_new(f"{directory}/{name}", "")
    for older in before:
        files.delete(f"{directory}/{older}")
