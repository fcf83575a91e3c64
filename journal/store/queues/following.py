"""How a loaded QueueState follows the journal: messages that change or are deleted, and queues that are destroyed.

Every changed message is given as a whole, and compared with the state. An unchanged reference stays in its place; any
other is removed and added again. Each change is applied completely as soon as it is given, so the cost of
`load_complete` does not grow with the number of changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from journal.errors import StateError
from journal.store.message_records import MessageFacts
from journal.store.queues.index import Paged
from journal.store.queues.loading import NOWHERE, LoadedReference, QueueLoading
from journal.store.queues.paging import paged_facts
from journal.store.queues.references import READY, SCHEDULED, SETTLING, STATE
from journal.store.queues.tables import QueueTables

_DESTROYED_MAX = 100_000
"""The number of destroyed queues that are remembered.

References to older destroyed queues use memory until `load_complete`. If one of those queues came back, which queues of
a message store never do, it would not be noticed.
"""


class QueueFollowing(QueueLoading):
    """Follows the journal until `load_complete`. All references are READY, SCHEDULED or HELD."""

    def __init__(self, tables: QueueTables) -> None:
        super().__init__(tables)
        self._destroyed: dict[int, None] = {}

    # ---- messages --------------------------------------------------------------------------------------------------

    def follow_message(self, message_id: int, facts: MessageFacts, references: Sequence[LoadedReference]) -> None:
        """Load a message that is new or may have changed, as `load_message` does. Hot path: a new one."""
        table, tables = self._references, self._tables
        if self._destroyed:
            references = [each for each in references if each.queue not in self._destroyed]
        message_row = table.row_of.get(message_id, -1)
        paged: list[Paged] = []
        if tables.paged and (message_row < 0 or message_row in table.paged):
            paged = tables.find(message_id)
        if message_row < 0 and not paged:
            self.load_message(message_id, facts, references)
        elif self._is_the_same(message_row, paged, facts):
            self._compare(message_id, message_row, paged, facts, references or NOWHERE)
        else:
            self.unload_message(message_id)
            self.load_message(message_id, facts, references)

    def _is_the_same(self, message_row: int, paged: Sequence[Paged], facts: MessageFacts) -> bool:
        """Whether this is the message in the state, and not another message that was stored with the same id."""
        name, priority, size, timestamp, expires, due, chunks, _ = facts
        told = (priority, size, timestamp, expires, chunks, due)
        if message_row < 0:
            address_id, priority, _, size, timestamp, chunks, due, _, _ = paged_facts(paged[0].data)
            expires = paged[0].expires
        else:
            table = self._references
            address_id, priority, size = (
                table.address[message_row],
                table.priority(message_row),
                table.size[message_row],
            )
            timestamp, expires = table.timestamp[message_row], table.expires[message_row]
            chunks, due = table.chunks.get(message_row, ()), table.due.get(message_row, 0)
        address = self._address_of.get(address_id)
        return told == (priority, size, timestamp, expires, chunks, due) and (address is None or address.name == name)

    def _compare(
        self, message_id: int, message_row: int, paged: Sequence[Paged], facts: MessageFacts,
        references: Sequence[LoadedReference],
    ) -> None:  # fmt: skip
        """Remove references that no longer exist, and add new ones."""
        table, tables = self._references, self._tables
        new = {each.queue: each for each in references}
        kept: list[Paged] = []
        for each in paged:
            if _of_paged(each) == new.get(each.queue):
                kept.append(each)
                del new[each.queue]
            else:
                self._take_away(tables.bring_back(each))
        message_row = table.row_of.get(message_id, -1)
        for row in table.of_message(message_row) if message_row >= 0 else ():
            if self._of_row(row) == new.get(table.queue[row]):
                del new[table.queue[row]]
            else:
                self._take_away(row)
        if new:
            if message_row < 0:
                message_row = tables.know(kept)
            table.live[message_row] += len(new)
            self._load_references(message_row, facts.priority, facts.size, list(new.values()))
        elif message_row >= 0:
            self._let_go(message_row)

    def _of_row(self, row: int) -> LoadedReference:
        table, tables = self._references, self._tables
        holder, due = tables.holds.holder(row), tables.due.get(row, 0)
        return LoadedReference(table.queue[row], table.place(row), holder, table.deliveries[row], due)

    def unload_message(self, message_id: int) -> None:
        """Forget a message with all its references, if one with that id exists. Hot path: one reference."""
        table, tables = self._references, self._tables
        message_row = table.row_of.get(message_id, -1)
        if tables.paged and (message_row < 0 or message_row in table.paged):
            for paged in tables.find(message_id):
                tables.bring_back(paged)
            message_row = table.row_of.get(message_id, -1)
        if message_row < 0:
            return
        for row in table.of_message(message_row):
            self._take_away(row)
        tables.drop_message(message_row)

    # ---- references ------------------------------------------------------------------------------------------------

    def _take_away(self, row: int) -> int:
        """Remove a reference from memory. Its message stays in the table; returns the message's row."""
        table, tables = self._references, self._tables
        message_row = table.message[row]
        entry = tables.queues[table.queue[row]]
        state = table.flags[row] & STATE
        if state == READY:
            line = tables.line_of(entry, row)
            line.leave(row, SETTLING)
            line.first()  # this drops rows at the front that have left the line, because nobody takes messages from it
        elif state == SCHEDULED:
            tables.schedule.remove()
        entry.counts[state] -= 1
        entry.bytes -= table.size[message_row]
        if state != READY:
            entry.away.discard(row)
            tables.clear(row)
        table.drop_reference(row)
        table.live[message_row] -= 1
        return message_row

    def _let_go(self, message_row: int) -> None:
        """Called after references were removed. A message without references stays known; one with all references in
        the index is forgotten in memory."""
        table = self._references
        if not table.live[message_row]:
            table.live[message_row] = 1
            self._load_references(message_row, table.priority(message_row), table.size[message_row], NOWHERE)
        elif not table.of_message(message_row):
            self._tables.drop_message(message_row)

    # ---- queues ----------------------------------------------------------------------------------------------------

    def unload_queue(self, queue_id: int) -> None:
        """Forget a queue that is not listed (any more), with all its references."""
        tables = self._tables
        self._destroyed[queue_id] = None
        if len(self._destroyed) > _DESTROYED_MAX:
            del self._destroyed[next(iter(self._destroyed))]
        entry = tables.queues.get(queue_id)
        if entry is None:
            return
        for row in [*entry.all_away(), *(row for line in entry.lines for row in line.drain())]:
            self._let_go(self._take_away(row))
        if tables.index is not None and entry.paged:
            for paged in chain.from_iterable(tables.index.scan(queue_id)):
                self._let_go(self._take_away(tables.bring_back(paged)))
        del tables.queues[queue_id]

    def require_not_destroyed(self, queue_id: int) -> None:
        """Raises StoreError for a queue that was unloaded, because only a new load can find its references again."""
        if queue_id in self._destroyed:
            raise StateError(f"queue {queue_id} is there again after it was destroyed: load the journal anew")


def _of_paged(paged: Paged) -> LoadedReference:
    *_, deliveries, _ = paged_facts(paged.data)
    return LoadedReference(paged.queue, paged.place, "", deliveries, paged.due)
