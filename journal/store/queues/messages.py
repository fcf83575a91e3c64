"""The messages of a QueueState, and how their references come to its queues."""

from __future__ import annotations

from collections.abc import Sequence

from journal.errors import MessageHeldError, MessageMissingError, StoreError
from journal.store.model import PRIORITY_MAX
from journal.store.queues.directory import QueueDirectory
from journal.store.queues.entry import MessageEntry, QueueEntry
from journal.store.queues.index import Paged
from journal.store.queues.paging import paged_facts
from journal.store.queues.references import ARRIVING, PRIORITY, READY, SETTLING, STATE
from journal.store.queues.tables import QueueTables


class QueueMessages(QueueDirectory):
    """Stores and routes messages. Hot path: store, route and arrive."""

    def __init__(self, tables: QueueTables) -> None:
        super().__init__(tables)
        self._references = tables.references
        self._queues = tables.queues

    # ---- messages --------------------------------------------------------------------------------------------------

    def store(
        self,
        message_id: int,
        address_id: int,
        *,
        priority: int,
        size: int,
        expires: int = 0,
        timestamp: int = 0,
        due: int = 0,
        durable: bool = True,
        chunks: Sequence[int] = (),
    ) -> None:
        """Add a message without references. `size` is that of `MessageFacts`, `address_id` the id of the address's
        record, and `due` the message's own time, which only later routes use.

        Raises StoreError if it is known already.
        """
        if self._is_stored(message_id):
            raise StoreError(f"message {message_id} is stored already")
        row = self._references.add_message(
            message_id, address_id, priority, size, expires, timestamp, durable, chunks, due
        )
        if expires:
            self._tables.expiry.add(row, expires)

    def _is_stored(self, message_id: int) -> bool:
        """Whether a message is stored, also if its last acknowledgement is not durable yet."""
        return message_id in self._references.row_of or bool(self._tables.paged and self._tables.forgotten(message_id))

    def stored_of(self, message_ids: Sequence[int], *, exactly: bool) -> set[int]:
        """Those of the given messages that are stored, also if their last acknowledgement is not durable yet.

        Unless `exactly`, the result also has messages that are only perhaps in the index, because asking the index for
        each message would take longer than everything else.
        """
        tables = self._tables
        if tables.paged and not exactly:
            return {*message_ids}
        stored = self._references.row_of.keys() & message_ids
        if tables.paged:
            stored.update(each for each in message_ids if each not in stored and tables.forgotten(each))
        return stored

    def is_known(self, record_id: int) -> bool:
        """Whether a message or a binding has that id."""
        return self._is_stored(record_id) or record_id in self._bindings

    def forget(self, message_id: int) -> None:
        """Forget a message without references: it was rolled back, or its queue was removed.

        A message whose last acknowledgement is not durable yet is forgotten when that is durable. Raises
        MessageMissingError, and StoreError for a message with references.
        """
        table = self._references
        row = table.row_of.get(message_id)
        if row is None:
            if not all(self._is_gone(paged.queue) for paged in self._tables.find(message_id)):
                raise StoreError(f"message {message_id} has references")
            if not self._tables.forget_paged(message_id):
                raise self._missing(message_id)
            return
        if table.live[row]:
            raise StoreError(f"message {message_id} has {table.live[row]} references")
        if table.first[row] == -1:
            self._tables.drop_message(row)
        else:
            table.delete(row)

    def message(self, message_id: int) -> MessageEntry:
        """The facts about a message. Raises MessageMissingError."""
        table = self._references
        row = table.row_of.get(message_id)
        if row is None:
            return self._paged_message(message_id)
        address = self._address_of.get(table.address[row])
        return MessageEntry(
            message_id,
            address.name
            if address is not None
            else self._address_by_queues([table.queue[each] for each in table.of_message(row)]),
            table.priority(row),
            table.size[row],
            table.expires[row],
            table.timestamp[row],
            table.due.get(row, 0),
            table.is_durable(row),
            table.live[row],
            table.chunks.get(row, ()),
        )

    def remainder(self, message_id: int) -> tuple[bool, int, tuple[int, ...]]:
        """The facts that an acknowledgement needs: whether the message is durable, its number of references that are
        not being settled, and its chunks.

        Hot path: `message` takes three times as long. Raises MessageMissingError.
        """
        table = self._references
        row = table.row_of.get(message_id)
        if row is None:
            entry = self._paged_message(message_id)
            return entry.durable, entry.references, entry.chunks
        return table.is_durable(row), table.live[row], table.chunks.get(row, ())

    def _paged_message(self, message_id: int) -> MessageEntry:
        everywhere = self._tables.forgotten(message_id)
        if not everywhere:
            raise self._missing(message_id)
        paged = everywhere[0]
        address_id, priority, durable, size, timestamp, chunks, due, _, _ = paged_facts(paged.data)
        address = self._address_of.get(address_id)
        name = address.name if address is not None else self._address_by_queues([each.queue for each in everywhere])
        # a queue that is being removed is still in `_queues`, so its references count here, as they do in `live`
        living = sum(paged.queue in self._queues for paged in everywhere)
        return MessageEntry(message_id, name, priority, size, paged.expires, timestamp, due, durable, living, chunks)

    def _address_by_queues(self, queue_ids: Sequence[int]) -> str:
        """The address of a message that was loaded before its address, found through the queues of the message."""
        return next((self._queues[each].config.address for each in queue_ids if each in self._queues), "")

    # ---- arriving ----------------------------------------------------------------------------------------------------

    def route(self, message_id: int, queue_id: int, *, due: int = 0, tx: int = 0) -> None:
        """Called when a route is accepted: the queue gets an ARRIVING reference, which cannot be delivered yet.

        Raises what `require_routable` raises.
        """
        table, tables = self._references, self._tables
        entry, found = self.require_routable(message_id, queue_id)
        message_row = table.row_of.get(message_id, -1)
        if message_row < 0:
            message_row = tables.know(found)
        row = table.add_reference(message_row, queue_id, ARRIVING)
        table.live[message_row] += 1
        entry.counts[ARRIVING] += 1
        entry.bytes += table.size[message_row]
        entry.away.add(row)
        if due:
            tables.due[row] = due
        if tx:
            tables.tx[row] = tx
            entry.adding += 1

    def require_routable(self, message_id: int, queue_id: int) -> tuple[QueueEntry, list[Paged]]:
        """The queue to which a message can be routed, and the message's references in the index.

        Raises MessageMissingError, QueueMissingError, StoreError (the queue has the message).
        """
        table, tables = self._references, self._tables
        entry = self.queue_of(queue_id)
        message_row = table.row_of.get(message_id, -1)
        found = []
        if tables.paged and (message_row < 0 or message_row in table.paged):
            found = tables.find(message_id)
        if (message_row < 0 and not found) or (message_row >= 0 and table.is_deleted(message_row)):
            raise self._missing(message_id)
        if (message_row >= 0 and table.find(message_row, queue_id) >= 0) or queue_id in [each.queue for each in found]:
            raise StoreError(f"queue {entry.config.name!r} has message {message_id} already")
        return entry, found

    def store_and_route(
        self,
        message_id: int,
        address_id: int,
        entry: QueueEntry,
        priority: int,
        size: int,
        expires: int,
        timestamp: int,
        due: int,
    ) -> None:
        """Call `store` for a durable message that is not large, and `route` it to one queue. Raises what `store`
        raises."""
        if self._is_stored(message_id):
            raise StoreError(f"message {message_id} is stored already")
        tables, table = self._tables, self._references
        message_row = table.add_message(message_id, address_id, priority, size, expires, timestamp, True, (), due)
        row = table.add_reference(message_row, entry.record_id, ARRIVING)
        table.live[message_row] = 1
        if expires:
            tables.expiry.add(message_row, expires)
        if due:
            tables.due[row] = due
        entry.counts[ARRIVING] += 1
        entry.bytes += size
        entry.away.add(row)

    def arrive(self, message_id: int, queue_id: int) -> None:
        """Called when a route is durable (or its transaction is committed): the reference becomes READY or SCHEDULED,
        behind all others of its priority.

        Raises MessageMissingError if there was no route.
        """
        tables, table = self._tables, self._references
        entry = self._queues.get(queue_id)
        if entry is None or entry.gone:
            return
        row = self._arriving(message_id, queue_id)
        high = tables.next_high
        tables.next_high = high + 1
        table.high[row] = high
        table.low[row] = 0
        if tables.tx and tables.tx.pop(row, 0):
            entry.adding -= 1
        counts = entry.counts
        line = entry.line(PRIORITY_MAX - table.priority(table.message[row]))
        if tables.due and row in tables.due:
            entry.not_away(row)  # the reference leaves its run, because it arrives alone
            entry.away.add(row)
            tables.make_scheduled(entry, row)
            return
        full = tables.index is not None and (line.paged > 0 or tables.is_full(entry))
        counts[ARRIVING] -= 1
        counts[READY] += 1
        if entry.watch is not None:
            entry.watch.has_something(entry)
        entry.not_away(row)
        if full:
            tables.page_out(entry, line, row)
        else:
            line.append(row, high << 64)

    def arrive_each(self, arrivals: Sequence[tuple[int, int]]) -> None:
        """Call `arrive` for each (message, queue), in this order. Hot path: the most frequent kind is done in one
        step."""
        tables, table, queues = self._tables, self._references, self._queues
        row_of, first, queue_of, flags = table.row_of, table.first, table.queue, table.flags
        high, low, marks = table.high, table.low, table.marks
        for message_id, queue_id in arrivals:
            entry = queues.get(queue_id)
            message_row = row_of.get(message_id, -1)
            row = first[message_row] if message_row >= 0 else -1
            if (
                entry is None
                or entry.gone
                or row < 0
                or queue_of[row] != queue_id
                or flags[row] != ARRIVING
                or tables.tx
                or tables.due
                or (tables.index is not None and tables.may_fill(entry, 1))
            ):
                self.arrive(message_id, queue_id)
                continue
            place = tables.next_high
            tables.next_high = place + 1
            high[row] = place
            low[row] = 0
            counts = entry.counts
            counts[ARRIVING] -= 1
            counts[READY] += 1
            if entry.watch is not None:
                entry.watch.has_something(entry)
            entry.not_away(row)
            entry.line(PRIORITY_MAX - (marks[message_row] & PRIORITY)).append(row, place << 64)

    def withdraw(self, message_id: int, queue_id: int) -> bool:
        """Called when a route is rolled back. True if the message has no reference left; it stays known until `forget`.

        Raises MessageMissingError if there was no route.
        """
        tables, table = self._tables, self._references
        entry = self._queues.get(queue_id)
        if entry is None or (entry.gone and self._row_of(message_id, queue_id) < 0):
            return False
        row = self._arriving(message_id, queue_id)
        entry.adding -= row in tables.tx
        message_row = table.message[row]
        table.live[message_row] -= 1
        none_left = not table.live[message_row]
        entry.bytes -= table.size[message_row]
        tables.clear(row)
        tables.drop_reference(entry, row)
        return none_left

    def _arriving(self, message_id: int, queue_id: int) -> int:
        row = self._row_of(message_id, queue_id)
        if row < 0 or self._references.flags[row] & STATE != ARRIVING:
            raise self._missing(message_id, queue_id)
        return row

    def _row_of(self, message_id: int, queue_id: int) -> int:
        """The row of a reference in memory, or -1."""
        table = self._references
        message_row = table.row_of.get(message_id, -1)
        return table.find(message_row, queue_id) if message_row >= 0 else -1

    # ---- look-ups with errors ---------------------------------------------------------------------------------------

    def _present(self, message_id: int, queue_id: int) -> tuple[QueueEntry, int]:
        """The queue of a reference and its row, if the reference is neither arriving nor being settled."""
        entry, table = self.queue_of(queue_id), self._references
        message_row = table.row_of.get(message_id, -1)
        row = table.find(message_row, queue_id) if message_row >= 0 else -1
        if row < 0 and self._tables.paged:
            row = self._tables.recall(message_id, queue_id)
        if row < 0 or table.flags[row] & STATE in (ARRIVING, SETTLING):
            raise self._missing(message_id, queue_id)
        return entry, row

    def _check_holder(self, message_id: int, row: int, holder: str) -> None:
        held_by = self._tables.holds.holder(row)
        if held_by and held_by != holder:
            raise MessageHeldError(f"message {message_id} is held by {held_by!r}", message_id)

    def _locked(self, message_id: int, row: int) -> MessageHeldError:
        return MessageHeldError(f"message {message_id} is locked by transaction {self._tables.tx[row]}", message_id)

    def _missing(self, message_id: int, queue_id: int = 0) -> MessageMissingError:
        entry = self._queues.get(queue_id)
        where = "" if entry is None else f" in queue {entry.config.name!r}"
        return MessageMissingError(f"there is no message {message_id}{where}", message_id)
