"""Looking at references without touching them: a queue in delivery order, a message's in all queues."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from journal.store.model import PRIORITY_MAX, ReferenceInfo, ReferenceState
from journal.store.paging import paged_facts
from journal.store.queue_entry import QueueEntry
from journal.store.queue_tables import QueueTables
from journal.store.references import ARRIVING, HELD, LOCKED, READY, SCHEDULED, SETTLING, STATE, Paged

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


def in_order(tables: QueueTables, entry: QueueEntry) -> Iterator[ReferenceInfo]:
    """A queue's references in delivery order, those in the index among them."""
    table = tables.references
    beside = [row for row in entry.all_away() if table.flags[row] & STATE != ARRIVING]
    for line in entry.lines:
        beside += line.returned()
    runs = [iter(sorted((_order(tables, row), row) for row in beside))]
    runs.append((_order(tables, row), row) for line in entry.lines for row in line.ordered())
    memory = ((order, of_row(tables, row)) for order, row in merge(*runs))
    if not entry.paged or tables.index is None:
        return (info for _, info in memory)
    paged = (
        (((paged.rank, paged.place), _of_paged(tables, paged)) for paged in run)
        for run in tables.index.scan(entry.record_id)
    )
    return (info for _, info in merge(memory, *paged, key=_by_order))


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
    found = [of_row(tables, row) for row in rows if table.flags[row] & STATE != ARRIVING or row in tables.tx]
    return found + [_of_paged(tables, paged) for paged in tables.find(message_id)]


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
