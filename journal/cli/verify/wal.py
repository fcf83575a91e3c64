"""A shard's WAL as `verify` reads it, and how much of it comes after the last record that was compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from journal.errors import CorruptionError
from journal.verify.wal_fold import WalRecord
from journal.words import counted


class WatchedWal:
    """The WAL of a shard. If a damaged record follows all records that are needed, reading ends before it, so that the
    earlier records can be compared."""

    def __init__(self, records: Iterator[WalRecord], needed: Callable[[], int]) -> None:
        """`needed` gives, once reading has begun, the last offset that is compared with anything."""
        self.damage: CorruptionError | None = None
        """The error that ended the reading."""
        self._records = records
        self._needed = needed
        self._last = -1

    def __iter__(self) -> Iterator[WalRecord]:
        try:
            for record in self._records:
                self._last = record[0]
                yield record
        except CorruptionError as error:
            if self._last < self._needed():
                raise
            self.damage = error

    def left(self, offset: int, end: int) -> str:
        """A text about the records between `offset` and `end`; empty if there are none. It reads on to the end."""
        count, last = 0, -1
        for each in self._behind(offset):
            if each < end:
                count, last = count + 1, each
        if self.damage is not None:
            return f"what lies behind offset {offset}: it cannot be read to its end"
        records = (
            f"{counted(count, 'WAL record')} behind offset {offset}, to offset {last}: they were compared with nothing"
        )
        return records if count else ""

    def _behind(self, offset: int) -> Iterator[int]:
        """The number of records after `offset`: those that were read, and those that were not."""
        if self._last > offset:
            yield self._last
        try:
            for record in self._records:
                if record[0] > offset:
                    yield record[0]
        except CorruptionError as error:
            self.damage = error
