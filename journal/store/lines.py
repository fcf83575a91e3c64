"""A line: the READY references of one queue and one priority in delivery order.

Almost all come at the end and leave at the front, so the order is an array of rows with a moving front. What comes back
(released, rolled back, due) goes to a heap beside it, by place. What leaves from the middle stays in the order until
the front comes by, or until half of the line is such; its row is not reused before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from journal.store.columns import fill, same_bytes, together
from journal.store.references import QUEUED, READY, READY_QUEUED, References

_STALE_MIN = 32
_PASSED_MIN = 64
_MERGED_MIN = 64
_MERGE_MOVES_MAX = 4
"""Rows of the order that are sorted again for each one that came beside it."""


class Line:
    """One line; `paged` more references wait in the index, each behind all of the order's rows."""

    __slots__ = ("_head", "_in_order", "_last", "_merge_at", "_returned", "_rows", "_stale", "_table", "paged", "rank")

    def __init__(self, table: References, rank: int) -> None:
        self.rank = rank
        self.paged = 0
        self._table = table
        self._rows = array("i")
        self._head = 0
        self._returned: list[tuple[int, int]] = []
        self._stale = 0
        self._last = 0
        """Place of the order's last row, while it has rows."""
        self._in_order = True
        self._merge_at = _MERGED_MIN

    def __len__(self) -> int:
        """Rows of the order, with those that left from its middle."""
        return len(self._rows) - self._head

    # ---- coming ----------------------------------------------------------------------------------------------------

    def append(self, row: int, place: int) -> None:
        """READY behind all others."""
        self._table.flags[row] = READY_QUEUED
        self._rows.append(row)
        self._last = place

    def append_all(self, rows: Sequence[int], place: int) -> None:
        """`append` of rows in their order, of which the last has that place."""
        flags = self._table.flags
        fill(flags, rows, same_bytes(READY_QUEUED, len(rows)))
        self._rows.extend(rows)
        self._last = place

    def load(self, row: int, place: int) -> None:
        """READY anywhere; `sort` follows."""
        if place < self._last:
            self._in_order = False
        self.append(row, place)

    def sort(self) -> None:
        """After a load."""
        if self._rows and not self._in_order:
            self._rows = array("i", sorted(self._rows, key=self._table.place))
            self._last = self._table.place(self._rows[-1])
        self._in_order = True

    def insert(self, row: int, place: int) -> None:
        """READY anywhere, in its place at once: arrivals of one checkpoint, told in no order."""
        if self.is_behind(place):
            self.append(row, place)
            return
        self.put_back(row)
        if len(self._returned) >= self._merge_at:
            self._merge()

    def _merge(self) -> None:
        """Take rows from beside the order into it where that moves few of it: there, they cost no memory of theirs."""
        rows, place = self._rows, self._table.place
        self._returned.sort()
        cut = max(self._head, len(rows) - _MERGE_MOVES_MAX * len(self._returned))
        at = bisect_right(self._returned, (place(rows[cut]), rows[cut]))
        rows[cut:] = array("i", sorted([*rows[cut:], *(row for _, row in self._returned[at:])], key=place))
        del self._returned[at:]
        self._last = place(rows[-1])
        self._merge_at = max(_MERGED_MIN, 2 * len(self._returned))

    def put_back(self, row: int) -> None:
        """READY again, in its place."""
        flags = self._table.flags
        if flags[row] & QUEUED:
            self._stale -= 1
        else:
            heappush(self._returned, (self._table.place(row), row))
        flags[row] = READY_QUEUED

    def is_empty(self) -> bool:
        """Whether it has no row, beside the order or in it."""
        return len(self._rows) == self._head and not self._returned

    def is_behind(self, place: int) -> bool:
        """Whether a place is behind all of the order."""
        return len(self._rows) == self._head or place > self._last

    # ---- leaving ---------------------------------------------------------------------------------------------------

    def first(self) -> int:
        """The first READY row, or -1."""
        flags, rows, end = self._table.flags, self._rows, len(self._rows)
        head = self._head
        while head < end and flags[rows[head]] != READY_QUEUED:
            self._table.unqueue(rows[head])
            self._stale -= 1
            head += 1
        if head > _PASSED_MIN and head * 2 > end:
            del rows[:head]
            end -= head
            head = 0
        self._head = head
        returned = self._returned
        while returned and flags[returned[0][1]] != READY_QUEUED:
            self._table.unqueue(heappop(returned)[1])
            self._stale -= 1
        if returned and (head == end or returned[0][0] < self._table.place(rows[head])):
            return returned[0][1]
        return rows[head] if head < end else -1

    def pop(self, row: int, state: int) -> None:
        """Take out what `first` gave; it becomes `state`."""
        if self._returned and self._returned[0][1] == row:
            heappop(self._returned)
        else:
            self._head += 1
        self._table.flags[row] = state

    def pop_last(self) -> int:
        """Take the order's last READY row out, which stays READY: its row, or -1."""
        flags, rows = self._table.flags, self._rows
        while len(rows) > self._head:
            row = rows.pop()
            if flags[row] == READY_QUEUED:
                flags[row] = READY
                break
            self._table.unqueue(row)
            self._stale -= 1
        else:
            return -1
        if rows:
            self._last = self._table.place(rows[-1])
        return row

    def leave(self, row: int, state: int) -> None:
        """READY no more, wherever it stands."""
        flags = self._table.flags
        if not flags[row] & QUEUED:
            flags[row] = state
            return
        flags[row] = state | QUEUED
        self.left(1)

    def left(self, count: int) -> None:
        """So many rows of the order, or beside it, are READY no more."""
        self._stale += count
        if self._stale > _STALE_MIN and self._stale * 2 > len(self) + len(self._returned):
            self._sweep()

    def _sweep(self) -> None:
        """Let go of all that left. Hot path: mostly it is all there is, and came together."""
        flags = self._table.flags
        order, returned = self._rows[self._head :], self._returned
        self._head = self._stale = 0
        if order and not returned:
            rows = together(order)
            if type(rows) is range and READY_QUEUED not in flags[rows.start : rows.stop]:
                self._rows = array("i")
                self._table.unqueue_all(rows)
                return
        left = [row for row in order if flags[row] != READY_QUEUED]
        left += [row for _, row in returned if flags[row] != READY_QUEUED]
        self._rows = array("i", [row for row in order if flags[row] == READY_QUEUED])
        self._returned = [entry for entry in returned if flags[entry[1]] == READY_QUEUED]
        heapify(self._returned)
        self._table.unqueue_all(left)

    def drain(self) -> list[int]:
        """Let go of all; the READY ones, which stay READY, in no order."""
        self._sweep()
        rows = [*self._rows, *(row for _, row in self._returned)]
        for row in rows:
            self._table.flags[row] = READY
        self._rows = array("i")
        self._returned = []
        self._in_order = True
        self._last = 0
        return rows

    # ---- looking ---------------------------------------------------------------------------------------------------

    def rows(self) -> Sequence[int]:
        """A copy of the order, with rows that have left its middle."""
        return self._rows[self._head :]

    def rows_beside(self) -> Iterator[int]:
        """A copy of what is beside it, in no order, with rows that have left."""
        return (row for _, row in [*self._returned])
