"""How a load fills a QueueState. Messages come in any order, each with its references. Lines are sorted only once: at
the end, or before the state begins to follow the journal (`journal.store.queues.following`).

A reference may be loaded before its queue. It is kept until the end of the load; if its queue was not loaded by then,
the reference counts as settled. When a queue outgrows the memory bounds, all its READY references move to the index,
and new ones go there too as long as the index has references of that queue. So a load needs no more memory than the
loaded state.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from journal.store.message_records import MessageFacts
from journal.store.model import PRIORITY_MAX, QueueConfig
from journal.store.queues.entry import QueueEntry
from journal.store.queues.references import HELD, READY, SCHEDULED
from journal.store.queues.runs import QueueRuns
from journal.store.queues.tables import QueueTables

NO_QUEUE = 0
"""The queue id of messages without references during a load."""

_INDEX_BITS = 32
_HALF_BITS = 64
_LOW = (1 << _HALF_BITS) - 1


class LoadedReference(NamedTuple):
    """A reference as the journal holds it."""

    queue: int
    place: int
    """The reference's place in its queue, which `place_of` computes from the position of its ROUTE."""
    holder: str = ""
    deliveries: int = 0
    due: int = 0


NOWHERE = (LoadedReference(NO_QUEUE, 0),)
"""The references of a message that has none: one entry, whose queue is NO_QUEUE."""


def place_of(position: tuple[int, int, int]) -> int:
    """The place in a queue of an operation that took effect at (offset, index, ordinal)."""
    offset, index, ordinal = position
    return offset << _HALF_BITS | index << _INDEX_BITS | ordinal


class QueueLoading(QueueRuns):
    """Loads the state. No other operation may be called before the load is complete."""

    def __init__(self, tables: QueueTables) -> None:
        super().__init__(tables)
        self._in_order = False
        """Whether references that are loaded from now on are put in order at once."""

    def load_message(self, message_id: int, facts: MessageFacts, references: Sequence[LoadedReference]) -> None:
        """Load a message with its references that are not settled. A message without references is kept until
        `load_complete`."""
        address = self._addresses.get(facts.address)
        address_id = 0 if address is None else address.record_id
        table, (_, priority, size, timestamp, expires, due, chunks, _) = self._references, facts
        message_row = table.add_message(message_id, address_id, priority, size, expires, timestamp, True, chunks, due)
        if expires:
            self._tables.expiry.add(message_row, expires)
        loaded = references or NOWHERE
        table.live[message_row] = len(loaded)
        self._load_references(message_row, priority, size, loaded)

    def load_unrouted(self, message_id: int, facts: MessageFacts) -> None:
        """Load a message that a transaction in doubt stores. Raises StoreError if it is known already."""
        address = self._addresses.get(facts.address)
        self.store(
            message_id,
            0 if address is None else address.record_id,
            priority=facts.priority,
            size=facts.size,
            expires=facts.expires,
            timestamp=facts.timestamp,
            due=facts.due,
            chunks=facts.chunks,
        )

    def _load_references(
        self, message_row: int, priority: int, size: int, references: Sequence[LoadedReference]
    ) -> None:
        """Add further references of a known message; its number of live references counts them already."""
        table, tables = self._references, self._tables
        rows = [self._load_reference(message_row, priority, size, reference) for reference in references]
        if tables.index is not None:
            for row in rows:
                entry = tables.queues[table.queue[row]]
                if table.flags[row] != HELD and (entry.paged or tables.is_full(entry)):
                    self._spill(entry, PRIORITY_MAX - priority, row)

    def _load_reference(self, message_row: int, priority: int, size: int, reference: LoadedReference) -> int:
        """Add one reference, and return its row. Hot path: READY references take a short way."""
        table, tables = self._references, self._tables
        queue_id, place, holder, deliveries, due = reference
        entry = tables.queues.get(queue_id) or self._unknown_queue(queue_id)
        row = table.add_reference(message_row, queue_id, READY)
        entry.bytes += size
        high = place >> _HALF_BITS
        table.high[row] = high
        table.low[row] = place & _LOW
        if high >= tables.next_high:
            tables.next_high = high + 1
        if deliveries:
            table.deliveries[row] = deliveries
        if due:
            tables.due[row] = due
        if holder:
            tables.holds.add(row, holder)
            self._beside(entry, row, HELD)
        elif due:
            self._beside(entry, row, SCHEDULED)
            tables.schedule.add(row, due)
        else:
            entry.counts[READY] += 1
            line = entry.line(PRIORITY_MAX - priority)
            if self._in_order:
                line.insert(row, place)
            else:
                line.load(row, place)
        return row

    def _beside(self, entry: QueueEntry, row: int, state: int) -> None:
        self._references.flags[row] = state
        entry.counts[state] += 1
        entry.away.add(row)

    def _unknown_queue(self, queue_id: int) -> QueueEntry:
        tables = self._tables
        entry = QueueEntry(queue_id, QueueConfig(name="", address=""), tables.references, tables.first)
        tables.queues[queue_id] = entry
        return entry

    def _spill(self, entry: QueueEntry, rank: int, row: int) -> None:
        """Move a row to the index, and also all READY references of its queue if that has just outgrown its bounds."""
        tables, table = self._tables, self._references
        if table.flags[row] == SCHEDULED:
            tables.schedule.remove()
            tables.page_out(entry, entry.line(rank), row)
        for line in entry.lines:
            if not line.is_empty():
                for ready in line.drain():
                    tables.page_out(entry, line, ready)

    def sort_lines(self) -> None:
        """Sort the loaded references. References that are loaded from now on are put at their places at once."""
        for entry in self._tables.queues.values():
            for line in entry.lines:
                line.sort()
        self._in_order = True

    def load_complete(self) -> array[int]:
        """Complete the load. Returns the messages without a live reference, which stay known until `forget`."""
        tables = self._tables
        tables.loaded_before = tables.next_high
        if not self._in_order:
            self.sort_lines()
        orphans = array("q")
        for queue_id in sorted(tables.queues.keys() - set(self._queue_ids.values())):
            for some in tables.drop_queue(tables.queues[queue_id]):
                orphans += some
        return orphans
