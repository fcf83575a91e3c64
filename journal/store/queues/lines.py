"""A line keeps the order of one queue at one priority: its READY references, in delivery order.

Almost all references come at the end and leave at the front. So the order is a list of blocks of rows, and the first
block has a moving front. References that come back (released, rolled back, due) go to separate blocks beside the order,
sorted by place. A row that leaves from the middle stays in its block until the front reaches it, or until half of the
block has left; it is not reused before.

Blocks are small, and only the last block may consist of rows that have left. So a step with one row takes the same time
in a short and in a long line.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from journal.store.queues.columns import fill, gather, same_bytes
from journal.store.queues.references import QUEUED, READY, READY_QUEUED, References

_BLOCK_ROWS = 1024
_GONE_MIN = 32
_FAR = 1 << 128
"""A place behind all others."""


class _Block:
    """A block of rows in the order of their places. Rows before `head` no longer belong to it."""

    __slots__ = ("among", "gone", "head", "number", "rows")

    def __init__(self, number: int, among: list[_Block]) -> None:
        self.number = number
        self.among = among
        """The list of blocks to which it belongs."""
        self.rows = array("i")
        self.head = 0
        self.gone = 0
        """Number of its rows that are not READY any more."""

    def __len__(self) -> int:
        return len(self.rows) - self.head

    def own(self) -> array[int]:
        return self.rows[self.head :]


class Line:
    """The READY references of one queue at one priority, in delivery order. `paged` is the number of those in the
    index, which come after all references in memory."""

    __slots__ = ("_beside", "_block_of", "_in_order", "_last", "_next", "_order", "_table", "paged", "rank")

    def __init__(self, table: References, rank: int) -> None:
        self.rank = rank
        self.paged = 0
        self._table = table
        self._block_of: dict[int, _Block] = {}
        """Blocks by number. A column of the table gives the number for each row."""
        self._next = 0
        self._order: list[_Block] = []
        """The blocks of the order: at least one; only the last may be empty."""
        self._beside: list[_Block] = []
        self._begin(self._order)
        self._last = 0
        """The place of the last row of the order, if it has rows."""
        self._in_order = True

    def __len__(self) -> int:
        """The number of rows in the order, including those that have left from its middle."""
        return sum(map(len, self._order))

    def is_longer(self, count: int) -> bool:
        """Whether the order has more rows than this number."""
        for block in self._order:
            count -= len(block)
            if count < 0:
                return True
        return False

    def _begin(self, among: list[_Block], at: int | None = None) -> _Block:
        block = self._block_of[self._next] = _Block(self._next, among)
        self._next += 1
        among.insert(len(among) if at is None else at, block)
        return block

    def _end(self, block: _Block) -> None:
        """Remove a block that has no rows any more."""
        if block is self._order[-1]:
            block.rows = array("i")
            block.head = block.gone = 0
        else:
            block.among.remove(block)
            del self._block_of[block.number]

    # ---- coming ----------------------------------------------------------------------------------------------------

    def append(self, row: int, place: int) -> None:
        """Add a row that becomes READY behind all others."""
        block = self._order[-1]
        if len(block.rows) >= _BLOCK_ROWS:
            block = self._begin(self._order)
        table = self._table
        table.flags[row] = READY_QUEUED
        table.block[row] = block.number
        block.rows.append(row)
        self._last = place

    def append_all(self, rows: Sequence[int], place: int) -> None:
        """Add rows as `append` does, in their order; `place` is that of the last one."""
        fill(self._table.flags, rows, same_bytes(READY_QUEUED, len(rows)))
        for start in range(0, len(rows), _BLOCK_ROWS):
            part = rows[start : start + _BLOCK_ROWS]
            block = self._order[-1]
            if len(block.rows) and len(block.rows) + len(part) > _BLOCK_ROWS:
                block = self._begin(self._order)
            block.rows.extend(part)
            self._number(block, part)
        self._last = place

    def _number(self, block: _Block, rows: Sequence[int]) -> None:
        numbers = self._table.block
        fill(numbers, rows, array(numbers.typecode, [block.number]) * len(rows))

    def load(self, row: int, place: int) -> None:
        """Add a row at the end during a load, without regard to its place; `sort` is called after the load."""
        if place < self._last:
            self._in_order = False
        self.append(row, place)

    def sort(self) -> None:
        """Sort the order after a load."""
        if not self._in_order:
            rows = sorted(self.drain(), key=self._table.place)
            if rows:
                self.append_all(array("i", rows), self._table.place(rows[-1]))

    def insert(self, row: int, place: int) -> None:
        """Add a row at its place. A load that follows the journal needs this, because the references of one checkpoint
        come in no order."""
        if self.is_behind(place):
            self.append(row, place)
        else:
            self.put_back(row)

    def put_back(self, row: int) -> None:
        """Add a row that becomes READY again, at its place."""
        table = self._table
        was = table.flags[row]
        table.flags[row] = READY_QUEUED
        if was & QUEUED:
            self._block_of[table.block[row]].gone -= 1
        else:
            self._put_beside(row)

    def _put_beside(self, row: int) -> None:
        """Put a row beside the order, into the first block whose last place is behind the row's. Rows mostly come back
        in order."""
        beside, place_of = self._beside, self._table.place
        place = place_of(row)
        at = bisect_left(beside, place, key=lambda block: place_of(block.rows[-1]))
        if at == len(beside) and beside and len(beside[-1]) < _BLOCK_ROWS:
            at -= 1
        block = beside[at] if at < len(beside) else self._begin(beside)
        rows = block.rows
        if not rows or place > place_of(rows[-1]):
            rows.append(row)
        else:
            rows.insert(bisect_left(rows, place, lo=block.head, key=place_of), row)
        self._table.block[row] = block.number
        if len(block) > _BLOCK_ROWS:
            self._tidy(block)
        if len(block) > _BLOCK_ROWS:
            behind = self._begin(beside, at + 1)
            behind.rows = block.rows[_BLOCK_ROWS // 2 :]
            del block.rows[_BLOCK_ROWS // 2 :]
            self._number(behind, behind.rows)

    def is_empty(self) -> bool:
        """Whether the line has no rows, neither in the order nor beside it."""
        return not (self._order[0] or self._beside)

    def is_behind(self, place: int) -> bool:
        """Whether a place is behind all rows of the order."""
        return not self._order[0] or place > self._last

    # ---- leaving ---------------------------------------------------------------------------------------------------

    def first(self) -> int:
        """The first READY row, or -1."""
        row = self._first_of(self._order)
        if self._beside:
            beside = self._first_of(self._beside)
            if row < 0 or (beside >= 0 and self._table.place(beside) < self._table.place(row)):
                return beside
        return row

    def _first_of(self, among: list[_Block]) -> int:
        """The first READY row of these blocks, or -1. Rows before it that have left are dropped."""
        flags = self._table.flags
        while among:
            block = among[0]
            rows, head, end = block.rows, block.head, len(block.rows)
            while head < end and flags[rows[head]] != READY_QUEUED:
                self._table.unqueue(rows[head])
                block.gone -= 1
                head += 1
            block.head = head
            if head < end:
                return rows[head]
            self._end(block)
            if among and among[0] is block:
                break
        return -1

    def pop(self, row: int, state: int) -> None:
        """Remove the row that `first` returned; its new state is `state`."""
        block = self._block_of[self._table.block[row]]
        block.head += 1
        self._table.flags[row] = state
        if block.head == len(block.rows):
            self._end(block)

    def pop_last(self) -> int:
        """Take the last READY row out of the order. Returns the row, whose state stays READY, or -1 if the order has no
        READY row."""
        flags, order = self._table.flags, self._order
        while True:
            block = order[-1]
            rows = block.rows
            while block:
                row = rows.pop()
                if flags[row] == READY_QUEUED:
                    flags[row] = READY
                    last = block if block or len(order) == 1 else order[-2]
                    if last:
                        self._last = self._table.place(last.rows[-1])
                    return row
                self._table.unqueue(row)
                block.gone -= 1
            if len(order) == 1:
                return -1
            del self._block_of[order.pop().number]

    def leave(self, row: int, state: int) -> None:
        """Set the state of a row that is not READY any more, whether the row is in the order, beside it, or in no
        block."""
        table = self._table
        if not table.flags[row] & QUEUED:
            table.flags[row] = state
            return
        table.flags[row] = state | QUEUED
        self._left(self._block_of[table.block[row]], 1)

    def left(self, rows: Sequence[int]) -> None:
        """Called when these rows, in the order or beside it, are not READY any more. Hot path: mostly one block has
        them all."""
        numbers = gather(self._table.block, rows)
        if numbers.count(numbers[0]) == len(rows):
            self._left(self._block_of[numbers[0]], len(rows))
            return
        for number, count in Counter(numbers).items():
            self._left(self._block_of[number], count)

    def _left(self, block: _Block, count: int) -> None:
        block.gone += count
        if block.gone == len(block):
            if block.gone > _GONE_MIN or block is not block.among[-1]:
                self._table.unqueue_all(block.own())
                self._end(block)
        elif block.gone > _GONE_MIN and block.gone * 2 > len(block):
            self._tidy(block)

    def _tidy(self, block: _Block) -> None:
        """Remove the rows of a block that are not READY any more. Until then they were only counted."""
        flags, rows = self._table.flags, block.own()
        block.rows = array("i", [row for row in rows if flags[row] == READY_QUEUED])
        block.head = block.gone = 0
        self._table.unqueue_all([row for row in rows if flags[row] != READY_QUEUED])

    def drain(self) -> list[int]:
        """Empty the line. Returns its READY rows, in no order; their state stays READY."""
        flags = self._table.flags
        rows = [*self.rows(), *self.rows_beside()]
        ready = [row for row in rows if flags[row] == READY_QUEUED]
        self._table.unqueue_all(rows)
        self._block_of.clear()
        self._order.clear()
        self._beside.clear()
        self._begin(self._order)
        self._in_order = True
        self._last = 0
        return ready

    def after(self, place: int, limit: int) -> list[tuple[int, int]]:
        """(place, row) of the first READY rows behind a place, at most `limit`, in delivery order."""
        found = self._after(self._order, place, limit)
        if self._beside:
            found = sorted(found + self._after(self._beside, place, limit))[:limit]
        return found

    def _after(self, among: Sequence[_Block], place: int, limit: int) -> list[tuple[int, int]]:
        flags, place_of = self._table.flags, self._table.place
        found: list[tuple[int, int]] = []
        first = bisect_right(among, place, key=lambda block: place_of(block.rows[-1]) if block else _FAR)
        for block in among[first:]:
            rows = block.rows
            start = bisect_right(rows, place, lo=block.head, key=place_of) if not found else block.head
            for row in rows[start:]:
                if flags[row] == READY_QUEUED:
                    found.append((place_of(row), row))
                    if len(found) == limit:
                        return found
        return found

    # ---- looking ---------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[int]:
        """A copy of the order, including rows that have left from its middle."""
        return chain.from_iterable([block.own() for block in self._order])

    def rows_beside(self) -> Iterator[int]:
        """A copy of the rows beside the order, including rows that have left."""
        return chain.from_iterable([block.own() for block in self._beside])
