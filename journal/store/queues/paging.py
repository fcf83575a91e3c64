"""The tables under a QueueState, and the references that wait in the index.

References stay in memory as long as the bounds allow. The index has the rest of each line, which comes later in
delivery order, SCHEDULED references, and references that expired before they could be taken. A message is in memory
while one of its references is. An operation on one reference (acquire, acknowledge) first brings it to memory. Only the
process that has written the index reads it.
"""

from __future__ import annotations

import marshal
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakSet

from journal.store.model import PRIORITY_MAX
from journal.store.queues.deadlines import Deadlines
from journal.store.queues.entry import QueueEntry
from journal.store.queues.holds import Holds
from journal.store.queues.index import Paged, ReferenceIndex
from journal.store.queues.lines import Line
from journal.store.queues.references import READY, SCHEDULED, STATE, References

_PAGE_MAX = 512
_LATEST = 2**64 - 1

Facts = tuple[int, int, bool, int, int, tuple[int, ...], int, int, bool]
"""The encoded data of a Paged reference: address, priority, durable, size, timestamp, chunks and own due time of its
message; deliveries; and whether the message has no other reference in the index."""


def paged_facts(data: bytes) -> Facts:
    facts: Facts = marshal.loads(data)
    return facts


def latest_first(expires: int) -> int:
    """A number for sorting times with the latest first: an earlier time gives a larger number."""
    return _LATEST - expires


class Onlooker(Protocol):
    """A reader that reads a queue in several steps."""

    def admitted(self, paged: Paged, row: int) -> None:
        """Called when a reference of any queue has come from the index into memory."""


class PagedTables:
    """The rows, lines, schedules and index of all queues.

    Two bounds limit the references in memory: one the READY and SCHEDULED references of each queue, and one all
    references of the node.
    """

    def __init__(
        self,
        references_in_memory_max: int,
        queue_references_in_memory_max: int,
        index: ReferenceIndex | None,
    ) -> None:
        self.references = References()
        self.queues: dict[int, QueueEntry] = {}
        self.holds = Holds()
        self.tx: dict[int, int] = {}
        """Transactions by row: of LOCKED rows, and of ARRIVING rows that a transaction adds."""
        self.due: dict[int, int] = {}
        """Due times of SCHEDULED rows, and of other rows that will be SCHEDULED if they come back."""
        self.first_delivered: dict[int, int] = {}
        """The time of the first delivery of rows, as far as it is known."""
        self.schedule = Deadlines(self._due_time())
        self.expiry = Deadlines(self.references.expires.__getitem__)
        """Rows of messages by the time at which they expire."""
        self.overdue: OrderedDict[int, None] = OrderedDict()
        """Messages that are known to have expired."""
        self.passed = Deadlines(self._passed_time())
        """Rows of READY references in memory that a take skipped because their messages had expired. The latest expiry
        time comes first (`latest_first`)."""
        self.passed_until = 0
        """The latest expiry time of the references that a take has passed over as expired, in memory or in the index.
        If the clock shows an earlier time, it was set back, and some of them have not expired after all."""
        self.showing_since = 0
        """When a batch of references that a take had passed over was put back after the clock was set back, if more
        batches must follow; else 0."""
        self.passing: dict[int, int] = {}
        """Queues in which a take stopped among expired messages, with the time since which the next one has expired."""
        self.next_high = 1
        """The high half of the place for the next arriving reference, which is behind all loaded ones."""
        self.loaded_before = 0
        """The high half of the first place after the load. References before it were there at the load."""
        self.index = index
        self.paged = 0
        """Number of references in the index."""
        self.paged_scheduled = 0
        self.onlookers: WeakSet[Onlooker] = WeakSet()
        """Readers that read a queue in several steps."""
        self._in_memory_max = references_in_memory_max
        self._arrivals_max = references_in_memory_max - references_in_memory_max // 8
        """The most arriving references in memory. Further ones are paged out, which leaves room for paging in."""
        self._queue_in_memory_max = queue_references_in_memory_max
        self._page = max(1, min(_PAGE_MAX, queue_references_in_memory_max // 2))

    def _due_time(self) -> Callable[[int], int]:
        due, flags = self.due, self.references.flags
        return lambda row: due.get(row, 0) if flags[row] & STATE == SCHEDULED else 0

    def _passed_time(self) -> Callable[[int], int]:
        table = self.references
        flags, message, expires = table.flags, table.message, table.expires
        return lambda row: latest_first(expires[message[row]]) if flags[row] == READY else 0

    def drop_message(self, message_row: int) -> None:
        """Forget a message that has no references in memory."""
        table = self.references
        if table.expires[message_row]:
            self.expiry.remove()
            self.overdue.pop(table.id[message_row], None)
        table.drop_message(message_row)

    def line_of(self, entry: QueueEntry, row: int) -> Line:
        table = self.references
        return entry.line(PRIORITY_MAX - table.priority(table.message[row]))

    # ---- from memory to the index -----------------------------------------------------------------------------------

    def is_full(self, entry: QueueEntry) -> bool:
        """Whether memory takes no further reference of this queue."""
        if self.index is None:
            return False
        in_queue = entry.counts[READY] + entry.counts[SCHEDULED] - entry.paged
        return in_queue >= self._queue_in_memory_max or self.references.references >= self._arrivals_max

    def may_fill(self, entry: QueueEntry, count: int) -> bool:
        """Whether `count` more references may exceed the bounds of this queue, or whether some of its references are
        paged out already."""
        in_queue = entry.counts[READY] + entry.counts[SCHEDULED] - entry.paged
        return (
            entry.paged > 0
            or in_queue + count > self._queue_in_memory_max
            or self.references.references + count > self._arrivals_max
        )

    def takes_back(self, entry: QueueEntry, line: Line, place: int) -> bool:
        """Whether memory takes a READY reference that comes back to its place; if not, it goes to the index.

        If there is no room, the last reference of the order is paged out, so that paged references stay behind the
        order.
        """
        if self.index is None:
            return True
        if line.is_behind(place):
            return not (line.paged or self.is_full(entry))
        if self.is_full(entry):
            last = line.pop_last()
            if last < 0:
                return False
            self.page_out(entry, line, last)
        return True

    def page_out(self, entry: QueueEntry, line: Line, row: int, *, passed: bool = False) -> None:
        """Move a row that is in no line to the index. It counts as READY, or as SCHEDULED if it has a due time."""
        table = self.references
        message_row = table.message[row]
        due = self.due.pop(row, 0)
        self.first_delivered.pop(row, None)
        place, deliveries = table.place(row), table.deliveries[row]
        entry.away.discard(row)
        table.drop_reference(row)
        others_paged = table.paged.get(message_row, 0)
        in_memory = table.first[message_row] != -1
        facts: Facts = (
            table.address[message_row],
            table.priority(message_row),
            table.is_durable(message_row),
            table.size[message_row],
            table.timestamp[message_row],
            table.chunks.get(message_row, ()),
            table.due.get(message_row, 0),
            deliveries,
            not in_memory and not others_paged,
        )
        paged = Paged(
            entry.record_id, line.rank, place, due, table.id[message_row], table.expires[message_row],
            marshal.dumps(facts), passed,
        )  # fmt: skip
        if in_memory:
            table.paged[message_row] = others_paged + 1
        else:
            self.drop_message(message_row)
        self.put_paged(entry, line, paged)

    def put_paged(self, entry: QueueEntry, line: Line, paged: Paged) -> None:
        assert self.index is not None
        self.index.put(paged)
        self._count_paged(entry, line, paged, 1)

    def _count_paged(self, entry: QueueEntry, line: Line, paged: Paged, by: int) -> None:
        self.paged += by
        entry.paged += by
        if paged.due:
            self.paged_scheduled += by
        elif not paged.passed:
            line.paged += by

    # ---- from the index to memory -----------------------------------------------------------------------------------

    def first(self, entry: QueueEntry, line: Line) -> int:
        """The first READY row of a line, or -1. References are paged in before they are needed."""
        row = line.first()
        if line.paged and not line.is_longer(self._page // 2):
            room = self._in_memory_max - self.references.references
            if room > 0 or not line.is_longer(0):
                self._page_in(entry, line, max(1, min(self._page, room)))
                row = line.first()
        return row

    def _page_in(self, entry: QueueEntry, line: Line, limit: int) -> None:
        assert self.index is not None
        for paged in self.index.page(entry.record_id, line.rank, limit):
            self._count_paged(entry, line, paged, -1)
            line.append(self.admit(paged), paged.place)

    def admit(self, paged: Paged) -> int:
        """Make rows for a reference that was taken out of the index, and for its message."""
        table = self.references
        address, priority, durable, size, timestamp, chunks, due, deliveries, alone = paged_facts(paged.data)
        message_row = table.row_of.get(paged.message, -1)
        if message_row < 0:
            message_row = table.add_message(
                paged.message, address, priority, size, paged.expires, timestamp, durable, chunks, due
            )
            if paged.expires:
                self.expiry.add(message_row, paged.expires)
            others = 0 if alone else len(self.find(paged.message))
            table.live[message_row] = 1 + others
        else:
            others = table.paged[message_row] - 1
        if others:
            table.paged[message_row] = others
        else:
            table.paged.pop(message_row, None)
        row = table.add_reference(message_row, paged.queue, READY)
        table.set_place(row, paged.place)
        table.deliveries[row] = deliveries
        for onlooker in self.onlookers:
            onlooker.admitted(paged, row)
        return row

    def find(self, message_id: int) -> list[Paged]:
        """The references of a message in the index, without those of removed queues."""
        if not self.paged:
            return []
        assert self.index is not None
        return [paged for paged in self.index.find(message_id) if paged.queue in self.queues]

    def know(self, found: list[Paged]) -> int:
        """Make a row for a message that is only in the index (`found`), because it gets one more reference."""
        assert self.index is not None
        table, first = self.references, found[0]
        address, priority, durable, size, timestamp, chunks, due, deliveries, alone = paged_facts(first.data)
        if alone:
            facts: Facts = (address, priority, durable, size, timestamp, chunks, due, deliveries, False)
            self.index.put(first._replace(data=marshal.dumps(facts)))
        row = table.add_message(first.message, address, priority, size, first.expires, timestamp, durable, chunks, due)
        if first.expires:
            self.expiry.add(row, first.expires)
        table.live[row] = table.paged[row] = len(found)
        return row

    def recall(self, message_id: int, queue_id: int) -> int:
        """Bring one reference back to memory. Returns its row, or -1 if it is not in the index."""
        for paged in self.find(message_id):
            if paged.queue == queue_id:
                return self.bring_back(paged)
        return -1

    def recall_all(self, message_id: int) -> None:
        """Bring all references of a message back to memory, except those of removed queues."""
        for paged in self.find(message_id):
            if not self.queues[paged.queue].gone:
                self.bring_back(paged)

    def bring_back(self, paged: Paged) -> int:
        """Take a reference out of the index, in which it was found, and return its row in memory."""
        assert self.index is not None
        self.index.remove(paged)
        entry = self.queues[paged.queue]
        self._count_paged(entry, entry.line(paged.rank), paged, -1)
        return self._put_back(entry, paged)

    def _put_back(self, entry: QueueEntry, paged: Paged) -> int:
        row = self.admit(paged)
        if paged.due:
            self.references.flags[row] = SCHEDULED
            entry.away.add(row)
            self.due[row] = paged.due
            self.schedule.add(row, paged.due)
        elif paged.passed:
            self.set_aside(entry, row, paged.expires)
        else:
            entry.line(paged.rank).put_back(row)
        return row

    def set_aside(self, entry: QueueEntry, row: int, expires: int) -> None:
        """Keep a READY row that a take has passed over because it has expired. The row is in no line."""
        entry.away.add(row)
        self.passed.add(row, latest_first(expires))
        self.passed_until = max(self.passed_until, expires)

    def take_due(self, now_ms: int, limit: int) -> int:
        """Make the references in the index that are due by now READY. Each stays in the index or comes to memory.
        Returns their number."""
        assert self.index is not None
        batch = self.index.due(now_ms, limit)
        for paged in batch:
            entry = self.queues[paged.queue]
            if not entry.gone:
                self._take_to_line(entry, paged)
                entry.counts[SCHEDULED] -= 1
                entry.counts[READY] += 1
                if entry.watch is not None:
                    entry.watch.has_something(entry)
        return len(batch)

    def take_passed(self, now_ms: int, limit: int) -> int:
        """After the clock was set back, references that a take has passed over as expired may not have expired. Put
        some of them back from the index into their lines, and return their number.

        Each stays in the index or comes to memory.
        """
        assert self.index is not None
        batch = self.index.passed(now_ms, limit)
        for paged in batch:
            entry = self.queues[paged.queue]
            if not entry.gone:
                self._take_to_line(entry, paged)
                if entry.watch is not None:
                    entry.watch.has_something(entry)
        return len(batch)

    def _take_to_line(self, entry: QueueEntry, paged: Paged) -> None:
        """Put a reference of the index into its place in its line, in the index or in memory."""
        assert self.index is not None
        self.index.remove(paged)
        line = entry.line(paged.rank)
        in_memory = self.takes_back(entry, line, paged.place)
        self._count_paged(entry, line, paged, -1)
        ready = paged._replace(due=0, passed=False)
        for cursor in entry.cursors:
            cursor.is_ready(paged.rank, paged.place, paged.message)
        if in_memory:
            self._put_back(entry, ready)
        else:
            self.put_paged(entry, line, ready)

    # ---- removed queues ---------------------------------------------------------------------------------------------

    def drop_paged(self, entry: QueueEntry, some: Iterable[Paged]) -> array[int]:
        """Take references of a removed queue out of the index. Returns the messages that have no other reference.

        If all references of a message are in the index, its last one stays there, so that `message` finds it, until
        `forget_paged`.
        """
        assert self.index is not None
        table = self.references
        orphans = array("q")
        for paged in some:
            message_row = table.row_of.get(paged.message, -1)
            if message_row < 0 and len(self.find(paged.message)) == 1:
                orphans.append(paged.message)
                continue
            self.index.remove(paged)
            self._count_paged(entry, entry.line(paged.rank), paged, -1)
            if message_row >= 0:
                table.live[message_row] -= 1
                table.paged[message_row] -= 1
                if not table.paged[message_row]:
                    del table.paged[message_row]
                if not table.live[message_row] and not table.is_deleted(message_row):
                    table.delete(message_row)
                    orphans.append(paged.message)
        return orphans

    def forgotten(self, message_id: int) -> list[Paged]:
        """All references of a message in the index, also those of removed queues."""
        return self.index.find(message_id) if self.paged and self.index is not None else []

    def forget_paged(self, message_id: int) -> bool:
        """Forget a message that is only in the index. Returns whether there was one."""
        found = self.forgotten(message_id)
        for paged in found:
            assert self.index is not None
            self.index.remove(paged)
            self.paged -= 1
            self.paged_scheduled -= bool(paged.due)
        return bool(found)
