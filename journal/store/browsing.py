"""Looking at references without touching them: a queue in delivery order, a message's in all queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from heapq import merge
from itertools import chain, islice

from journal.store.model import PRIORITY_MAX, ReferenceInfo, ReferenceState
from journal.store.paging import paged_facts
from journal.store.queue_entry import QueueEntry
from journal.store.queue_tables import QueueTables
from journal.store.references import ARRIVING, FREE, HELD, LOCKED, READY, SCHEDULED, SETTLING, STATE, Paged

_STATES = {
    READY: ReferenceState.READY,
    SCHEDULED: ReferenceState.SCHEDULED,
    HELD: ReferenceState.HELD,
    LOCKED: ReferenceState.LOCKED,
    SETTLING: ReferenceState.SETTLING,
    ARRIVING: ReferenceState.LOCKED,  # for its transaction
}

_Order = tuple[int, int]
"""Rank and place."""

Turn = Callable[[], AbstractContextManager[object]]
"""What a step is taken in: nothing changes meanwhile."""

_AT_ONCE = 200
"""Rows that are looked at in one turn."""


def in_order(tables: QueueTables, entry: QueueEntry, turn: Turn) -> Iterator[ReferenceInfo]:
    """A queue's references in delivery order, those in the index among them: those that are there when it begins, each
    as it stands when its turn comes.

    Others may be let in between the turns. In the first one row numbers are copied, in every other one some hundred
    rows are looked at; what has to be sorted is sorted outside of them.
    """
    with turn():
        began = _Began(tables, entry)
        lines = [line.rows() for line in entry.lines]
        beside = [[*entry.away], *entry.runs.values(), *(line.rows_beside() for line in entry.lines)]
        paged = tables.index.scan(entry.record_id) if entry.paged and tables.index is not None else []
    keys = sorted(key for part in _parts(chain(*beside)) for key in began.keys(part, turn))
    return _once(
        merge(
            began.told(chain(*lines), turn),
            began.told((row for _, row in keys), turn),
            *(began.told_of_index(run, turn) for run in paged),
            key=_by_order,
        )
    )


class _Began:
    """A queue as it was when somebody began to look at it."""

    def __init__(self, tables: QueueTables, entry: QueueEntry) -> None:
        self._tables = tables
        self._entry = entry
        self._next_high = tables.next_high
        """What has arrived since has a place behind it, whichever row it got."""

    def keys(self, rows: Sequence[int], turn: Turn) -> list[tuple[_Order, int]]:
        """Of those that are still there, with their rows."""
        with turn():
            return [(_order(self._tables, row), row) for row in rows if self._is_there(row)]

    def told(self, rows: Iterable[int], turn: Turn) -> Iterator[tuple[_Order, ReferenceInfo]]:
        for part in _parts(rows):
            with turn():
                tables = self._tables
                told = [(_order(tables, row), of_row(tables, row)) for row in part if self._is_there(row)]
            yield from told

    def told_of_index(self, run: Iterator[Paged], turn: Turn) -> Iterator[tuple[_Order, ReferenceInfo]]:
        more = True
        while more:
            with turn():
                part = list(islice(run, _AT_ONCE))
                is_there = not self._entry.gone
                told = [((each.rank, each.place), _of_paged(self._tables, each)) for each in part if is_there]
            yield from told
            more = bool(part)

    def _is_there(self, row: int) -> bool:
        table = self._tables.references
        return (
            not self._entry.gone
            and table.queue[row] == self._entry.record_id
            and table.flags[row] & STATE not in (FREE, ARRIVING)
            and table.high[row] < self._next_high
        )


def _once(told: Iterable[tuple[_Order, ReferenceInfo]]) -> Iterator[ReferenceInfo]:
    """What has left the middle of a line may also still be in its order."""
    last: _Order | None = None
    for order, info in told:
        if order != last:
            yield info
        last = order


def _parts(rows: Iterable[int]) -> Iterator[Sequence[int]]:
    rows = iter(rows)
    while part := list(islice(rows, _AT_ONCE)):
        yield part


def _by_order(item: tuple[_Order, ReferenceInfo]) -> _Order:
    return item[0]


def _order(tables: QueueTables, row: int) -> _Order:
    table = tables.references
    return PRIORITY_MAX - table.priority(table.message[row]), table.place(row)


def explain(tables: QueueTables, message_id: int) -> list[ReferenceInfo]:
    """A message's references, except those on their way outside of transactions."""
    table = tables.references
    message_row = table.row_of.get(message_id, -1)
    rows = table.of_message(message_row) if message_row >= 0 else []
    there = [row for row in rows if not tables.queues[table.queue[row]].gone]
    found = [of_row(tables, row) for row in there if table.flags[row] & STATE != ARRIVING or row in tables.tx]
    paged = [each for each in tables.find(message_id) if not tables.queues[each.queue].gone]
    return found + [_of_paged(tables, each) for each in paged]


def of_row(tables: QueueTables, row: int) -> ReferenceInfo:
    """A reference in memory."""
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
