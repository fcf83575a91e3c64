"""Rows by a time: which references are due, and which messages have expired. A heap of packed numbers, which may hold
outdated entries.

When the time of a row changes or the row is freed, its old entry stays in the heap; code that takes an entry out
compares it with the present time in the table. The owner counts the current entries. When most of a heap is outdated,
the current entries move to a new heap, a few with each new entry, so that no call takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1
_STALE_MIN = 64
_MOVED_AT_ONCE = 8
_PASSED_MAX = 500
"""The most outdated entries that one call removes."""


class Deadlines:
    """Times (ms) of rows. `time_of` returns the current time of a row; an entry with another time is outdated."""

    __slots__ = ("_heap", "_left", "_moved", "_time_of", "count")

    def __init__(self, time_of: Callable[[int], int]) -> None:
        self.count = 0
        """Number of current entries, as the owner has counted them."""
        self._heap: list[int] = []
        self._left: list[int] = []
        """A heap whose current entries are being moved to the other one. They are taken from the end of the list, so
        that it stays a heap."""
        self._moved: set[int] = set()
        """A heap of entries that were moved. An entry that was outdated and is current again may be in it twice."""
        self._time_of = time_of

    def add(self, row: int, time: int) -> None:
        """Add an entry, because a row has a new time."""
        self.count += 1
        heappush(self._heap, time << _ROW_BITS | row)
        if self._left:
            self._move()
        elif len(self._heap) > 2 * self.count + _STALE_MIN:
            self._heap, self._left = [], self._heap

    def _move(self) -> None:
        for _ in range(_MOVED_AT_ONCE):
            entry = self._left.pop()
            if self._is_true(entry) and entry not in self._moved:
                self._moved.add(entry)
                heappush(self._heap, entry)
            if not self._left:
                self._moved = set()
                return

    def _is_true(self, entry: int) -> bool:
        return self._time_of(entry & _ROW_MASK) == entry >> _ROW_BITS

    def remove(self) -> None:
        """Count one entry less, because the time of a row has changed or the row is freed."""
        self.count -= 1

    def next(self) -> int:
        """A time before which no row is due; 0 if there is none. It is the earliest time, unless very many entries are
        outdated."""
        for _ in range(_PASSED_MAX):
            heap = self._earliest()
            if not heap or self._is_true(heap[0]):
                break
            heappop(heap)
        heap = self._earliest()
        return heap[0] >> _ROW_BITS if heap else 0

    def pop(self, now_ms: int, limit: int) -> tuple[list[int], bool]:
        """Up to `limit` rows whose time has come, the earliest first, and whether there may be more.

        Their entries count until the owner calls `remove` for each.
        """
        rows: dict[int, None] = {}
        for _ in range(limit + _PASSED_MAX):
            heap = self._earliest()
            if not heap or heap[0] >> _ROW_BITS > now_ms:
                return [*rows], False
            entry = heappop(heap)
            if self._is_true(entry):
                rows[entry & _ROW_MASK] = None
                if len(rows) == limit:
                    break
        return [*rows], True

    def _earliest(self) -> list[int]:
        """The heap whose first entry is the earliest of all."""
        heap, left = self._heap, self._left
        return left if left and not (heap and heap[0] <= left[0]) else heap
