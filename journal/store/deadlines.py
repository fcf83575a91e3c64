"""Rows by a time: which references are due, which messages have expired. A heap of packed numbers, lean and lazy.

A row stays in the heap when its time is changed or it is gone; whoever pops it asks its table. So a table says how many
are true, and the heap is built anew when most of it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1
_STALE_MIN = 64


class Deadlines:
    """Times (ms) of rows. `time_of` gives a row's true time; an entry with another one does not count."""

    __slots__ = ("_heap", "_time_of", "count")

    def __init__(self, time_of: Callable[[int], int]) -> None:
        self.count = 0
        """True entries, as the owner has counted them."""
        self._heap: list[int] = []
        self._time_of = time_of

    def add(self, row: int, time: int) -> None:
        """The row's true time is `time` from now on."""
        self.count += 1
        heappush(self._heap, time << _ROW_BITS | row)
        if len(self._heap) > 2 * self.count + _STALE_MIN:
            self._rebuild(self._true_rows())

    def remove(self) -> None:
        """Some row's time is no longer true."""
        self.count -= 1

    def next(self) -> int:
        """The earliest true time; 0: there is none."""
        heap = self._heap
        while heap:
            time, row = heap[0] >> _ROW_BITS, heap[0] & _ROW_MASK
            if self._time_of(row) == time:
                return time
            heappop(heap)
        return 0

    def pop(self, now_ms: int) -> int:
        """The row of the earliest true time that has come, or -1. It stays counted until `remove`."""
        time = self.next()
        if not time or time > now_ms:
            return -1
        return heappop(self._heap) & _ROW_MASK

    def _true_rows(self) -> Iterable[int]:
        return {entry for entry in self._heap if self._time_of(entry & _ROW_MASK) == entry >> _ROW_BITS}

    def _rebuild(self, entries: Iterable[int]) -> None:
        self._heap = list(entries)
        heapify(self._heap)
