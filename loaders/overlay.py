"""Rows of a snapshot with changes laid over them. A read-only load folds the WAL's newest frames into it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from journal.fold.rows import Base, Change


class Overlay:
    """The rows of `base` as changed by `changes`; the last change of a key wins. The changes are kept in memory."""

    def __init__(self, base: Base, changes: Iterable[Change]) -> None:
        self._base = base
        self._changes = dict(changes)
        self._keys = sorted(self._changes)

    def get(self, key: bytes) -> bytes | None:
        if key in self._changes:
            return self._changes[key]
        return self._base.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows in key order: two sorted runs, merged."""
        place = bisect_left(self._keys, prefix)
        keys = self._keys
        for key, value in self._base.scan(prefix):
            while place < len(keys) and keys[place] < key:
                yield from self._row(keys[place])
                place += 1
            if place < len(keys) and keys[place] == key:
                yield from self._row(key)
                place += 1
            else:
                yield key, value
        while place < len(keys) and keys[place].startswith(prefix):
            yield from self._row(keys[place])
            place += 1

    def _row(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        value = self._changes[key]
        if value is not None:
            yield key, value
