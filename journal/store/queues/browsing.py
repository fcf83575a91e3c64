"""Reads references without changing them: those of a queue in delivery order, or those of a message in all queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from heapq import heappop, heappush, merge
from itertools import chain, islice

from journal.store.model import PRIORITY_MAX, ReferenceInfo, ReferenceState
from journal.store.queues.entry import QueueEntry
from journal.store.queues.index import Paged
from journal.store.queues.paging import paged_facts
from journal.store.queues.references import ARRIVING, FREE, HELD, LOCKED, READY, SCHEDULED, SETTLING, STATE
from journal.store.queues.tables import QueueTables

_STATES = {
    READY: ReferenceState.READY,
    SCHEDULED: ReferenceState.SCHEDULED,
    HELD: ReferenceState.HELD,
    LOCKED: ReferenceState.LOCKED,
    SETTLING: ReferenceState.SETTLING,
    ARRIVING: ReferenceState.LOCKED,  # a reference that a transaction adds is shown as locked by it
}

_Order = tuple[int, int]
"""The rank of a reference, and its place in the queue within this rank."""

_END: _Order = (PRIORITY_MAX + 1, 0)

Turn = Callable[[], AbstractContextManager[object]]
"""A function that gives a context in which one step is done. The state does not change inside of it."""

_AT_ONCE = 200
"""One step looks at this many rows of each copy, and at as many references that came from the index or are in it."""


def in_order(tables: QueueTables, entry: QueueEntry, turn: Turn) -> Iterator[ReferenceInfo]:
    """A queue's references in delivery order, including those in the index. They are the references that exist at the
    beginning, each in its state at the time when it is read.

    Other threads may change the state between the steps. The first step copies the numbers of rows; every other one
    looks at some hundred rows. Sorting is done outside of the steps.
    """
    with turn():
        look = _Look(tables, entry)
        beside = [[*entry.away], *entry.runs.values(), *(line.rows_beside() for line in entry.lines)]
    keys = sorted(key for part in _parts(chain(*beside)) for key in look.keys(part, turn))
    look.add(row for _, row in keys)
    while not look.is_over:
        with turn():
            told = look.tell()
        yield from told


class _Look:
    """Reads the references that a queue had at the time when the reading began, in steps.

    A step starts at a place in the order and looks at everything that may have references: the rows that existed at the
    beginning, the rows that came from the index since, and the index. It returns all references up to some place, and
    the next step continues behind that place. So a reference that moves to or from the index meanwhile is returned
    once.
    """

    def __init__(self, tables: QueueTables, entry: QueueEntry) -> None:
        self.is_over = False
        self._tables = tables
        self._entry = entry
        self._next_high = tables.next_high
        """The high half of the place that the next new reference would have got when the reading began. References that
        arrived later have this high half or a greater one, and are not returned."""
        self._from: _Order = (0, 0)
        """All references before this place have been returned."""
        self._copied = [_Copied(chain(*[line.rows() for line in entry.lines]))]
        self._admitted: list[tuple[_Order, int]] = []
        """A heap of (place, row) pairs: rows that came from the index, and whose places the reading has not reached."""
        self._readmitted: set[int] = set()
        """Rows that came from the index after the reading began. If the number of such a row was copied earlier, it
        meant another reference then."""
        tables.onlookers.add(self)

    def keys(self, rows: Sequence[int], turn: Turn) -> list[tuple[_Order, int]]:
        """The (place, row) pairs of the given rows that still hold a reference of the queue."""
        with turn():
            return self._keys(rows)

    def add(self, rows: Iterable[int]) -> None:
        """Add copied rows, in their order."""
        self._copied.append(_Copied(rows))

    def admitted(self, paged: Paged, row: int) -> None:
        order = paged.rank, paged.place
        if paged.queue == self._entry.record_id:
            self._readmitted.add(row)
            if order >= self._from:
                heappush(self._admitted, (order, row))

    def tell(self) -> list[ReferenceInfo]:
        """Do one step: returns the next references. The result may be empty although the reading is not over."""
        found: dict[_Order, int | Paged] = {}
        until = _END
        if not self._entry.gone:
            for copied in self._copied:
                until = min(until, self._look_at_copied(copied, found))
            until = min(until, self._look_at_admitted(found), self._look_at_index(found))
        told = sorted(order for order in found if self._from <= order < until)
        self._from = until
        self.is_over = until == _END
        return [self._told(found[order]) for order in told]

    def _look_at_copied(self, copied: _Copied, found: dict[_Order, int | Paged]) -> _Order:
        """Look at copied rows. Returns the place before which all references in them have been found."""
        rows, more = copied.next()
        keys = [key for key in self._keys(rows) if key[0] >= self._from]
        copied.keep([row for _, row in keys])
        found.update(keys)
        if not more:
            return _END
        return _behind(keys[-1][0]) if keys else self._from

    def _look_at_admitted(self, found: dict[_Order, int | Paged]) -> _Order:
        heap = self._admitted
        while heap and heap[0][0] < self._from:
            heappop(heap)
        keys = [heappop(heap) for _ in range(min(len(heap), _AT_ONCE))]
        until = _behind(keys[-1][0]) if heap else _END
        for key in keys:
            heappush(heap, key)
        order_of = partial(_order, self._tables)
        found.update((order, row) for order, row in keys if self._is_there(row) and order_of(row) == order)
        return until

    def _look_at_index(self, found: dict[_Order, int | Paged]) -> _Order:
        entry, index = self._entry, self._tables.index
        if not entry.paged or index is None:
            return _END
        runs = index.scan(entry.record_id, *self._from)
        part = list(islice(merge(*runs, key=_order_of_paged), _AT_ONCE))
        found.update((_order_of_paged(each), each) for each in part if each.place >> 64 < self._next_high)
        return _behind(_order_of_paged(part[-1])) if len(part) == _AT_ONCE else _END

    def _keys(self, rows: Iterable[int]) -> list[tuple[_Order, int]]:
        """The (place, row) pairs of the given rows that still hold the same reference."""
        there = [row for row in rows if row not in self._readmitted and self._is_there(row)]
        return [(_order(self._tables, row), row) for row in there]

    def _is_there(self, row: int) -> bool:
        table = self._tables.references
        return (
            not self._entry.gone
            and table.queue[row] == self._entry.record_id
            and table.flags[row] & STATE not in (FREE, ARRIVING)
            and table.high[row] < self._next_high
        )

    def _told(self, each: int | Paged) -> ReferenceInfo:
        return _of_paged(self._tables, each) if isinstance(each, Paged) else of_row(self._tables, each)


class _Copied:
    """Copied rows of a queue. A row leaves when the reference in it has been returned or is gone."""

    def __init__(self, rows: Iterable[int]) -> None:
        self._ahead: list[int] = []
        self._rest = iter(rows)

    def next(self) -> tuple[list[int], bool]:
        """The next rows, and whether there may be more of them."""
        self._ahead += islice(self._rest, _AT_ONCE - len(self._ahead))
        return self._ahead, len(self._ahead) == _AT_ONCE

    def keep(self, rows: list[int]) -> None:
        """Keep the rows from `next` on; the references before were returned or are gone."""
        self._ahead = rows


def _parts(rows: Iterable[int]) -> Iterator[Sequence[int]]:
    rows = iter(rows)
    while part := list(islice(rows, _AT_ONCE)):
        yield part


def _behind(order: _Order) -> _Order:
    rank, place = order
    return rank, place + 1


def _order_of_paged(paged: Paged) -> _Order:
    return paged.rank, paged.place


def _order(tables: QueueTables, row: int) -> _Order:
    table = tables.references
    return PRIORITY_MAX - table.priority(table.message[row]), table.place(row)


def explain(tables: QueueTables, message_id: int) -> list[ReferenceInfo]:
    """The references of a message, except arriving ones outside of transactions."""
    table = tables.references
    message_row = table.row_of.get(message_id, -1)
    rows = table.of_message(message_row) if message_row >= 0 else []
    there = [row for row in rows if not tables.queues[table.queue[row]].gone]
    found = [of_row(tables, row) for row in there if table.flags[row] & STATE != ARRIVING or row in tables.tx]
    paged = [each for each in tables.find(message_id) if not tables.queues[each.queue].gone]
    return found + [_of_paged(tables, each) for each in paged]


def of_row(tables: QueueTables, row: int) -> ReferenceInfo:
    """The reference in a row in memory."""
    table = tables.references
    message_row = table.message[row]
    return ReferenceInfo(
        table.id[message_row],
        tables.queues[table.queue[row]].config.name,
        _STATES[table.flags[row] & STATE],
        table.priority(message_row),
        table.deliveries[row],
        tables.holds.holder(row),
        tables.tx.get(row, 0),
        tables.due.get(row, 0),
    )


def _of_paged(tables: QueueTables, paged: Paged) -> ReferenceInfo:
    _, priority, *_, deliveries, _ = paged_facts(paged.data)
    state = ReferenceState.SCHEDULED if paged.due else ReferenceState.READY
    name = tables.queues[paged.queue].config.name
    return ReferenceInfo(paged.message, name, state, priority, deliveries, "", 0, paged.due)
