"""How a load fills a QueueState: messages in any order, each with its references; lines are sorted once, at the end.

References to queues that were not told (yet) are kept for the case that they will be; those that never are count as
settled. A queue that outgrows the memory bounds goes to the index as a whole, and so does the rest of it; so a load
needs no more memory than the state afterwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from journal.store.model import PRIORITY_MAX, QueueConfig
from journal.store.queue_entry import QueueEntry
from journal.store.queue_messages import QueueMessages
from journal.store.queue_tables import QueueTables
from journal.store.references import HELD, READY, SCHEDULED

NO_QUEUE = 0
"""The queue of messages without references, during a load."""

_INDEX_BITS = 32
_HALF_BITS = 64
_LOW = (1 << _HALF_BITS) - 1


class LoadedReference(NamedTuple):
    """A reference as a journal has it."""

    queue: int
    place: int
    """`place_of` its ROUTE's position."""
    holder: str = ""
    deliveries: int = 0
    due: int = 0


_NOWHERE = (LoadedReference(NO_QUEUE, 0),)


def place_of(position: tuple[int, int, int]) -> int:
    """The place in a queue of what took effect at (offset, index, ordinal)."""
    offset, index, ordinal = position
    return offset << _HALF_BITS | index << _INDEX_BITS | ordinal


class QueueLoading(QueueMessages):
    """Loading, before anything else is asked of the state."""

    def __init__(self, tables: QueueTables) -> None:
        super().__init__(tables)
        self._spilled: set[int] = set()
        """Queues that outgrew their bounds: what is READY in them is in the index."""

    def load_message(
        self,
        message_id: int,
        address_id: int,
        *,
        priority: int,
        size: int,
        expires: int,
        timestamp: int,
        chunks: Sequence[int],
        references: Sequence[LoadedReference],
    ) -> None:
        """A message with its references that are not settled. Without any it is kept until `load_complete`."""
        table, tables = self._references, self._tables
        message_row = table.add_message(message_id, address_id, priority, size, expires, timestamp, True, chunks)
        if expires:
            tables.expiry.add(message_row, expires)
        loaded = references or _NOWHERE
        table.live[message_row] = len(loaded)
        rows = [self._load_reference(message_row, priority, size, reference) for reference in loaded]
        if tables.index is not None:
            for row in rows:
                entry = tables.queues[table.queue[row]]
                if table.flags[row] != HELD and (entry.record_id in self._spilled or tables.is_full(entry)):
                    self._spill(entry, PRIORITY_MAX - priority, row)

    def _load_reference(self, message_row: int, priority: int, size: int, reference: LoadedReference) -> int:
        """Hot path: its row, where READY ones pass straight through."""
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
            entry.line(PRIORITY_MAX - priority).load(row, place)
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
        """The index takes a row, and all that is READY of a queue that has just outgrown its bounds."""
        tables, table = self._tables, self._references
        if table.flags[row] == SCHEDULED:
            tables.schedule.remove()
            tables.page_out(entry, entry.line(rank), row)
        self._spilled.add(entry.record_id)
        for line in entry.lines:
            if len(line):
                for ready in line.drain():
                    tables.page_out(entry, line, ready)

    def load_complete(self) -> array[int]:
        """Everything was told: messages without a reference that lives. They stay known until `forget`."""
        tables = self._tables
        self._spilled.clear()
        for entry in tables.queues.values():
            for line in entry.lines:
                line.sort()
        named = set(self._queue_ids.values())
        orphans = array("q")
        for entry in [entry for entry in tables.queues.values() if entry.record_id not in named]:
            orphans += tables.drop_queue(entry)
        return orphans
