"""The state of all queues: which references are ready, scheduled, held, locked, arriving and settling, and in which
order.

The class is pure: time is an argument, and the only I/O is that of the index for references that do not fit in memory.
The store's lock guards it. A reference that an operation adds arrives when the operation is durable; a reference that
an operation takes away is gone when the operation is accepted. The order of a queue is (priority, place), and
`journal.store.queues.lines` keeps it: places are given in order of arrival, which is the order of the WAL, and a load
takes them from there.

    route -> ARRIVING -> arrive -> READY <-> HELD (take, acquire, release)     SCHEDULED -> READY (due)
                                   READY, SCHEDULED, HELD <-> LOCKED (lock, unlock: a transaction's acknowledge)
                                   READY, SCHEDULED, HELD, LOCKED -> SETTLING (acknowledge) -> gone (settled)

Hot path: store, route, arrive, take, acknowledge and settled work on columns of numbers
(`journal.store.queues.references`), and runs of messages column by column (`journal.store.queues.runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from journal.errors import MessageExpiredError, MessageHeldError, QueueInDoubtError
from journal.store.model import Delivery, ReferenceInfo
from journal.store.queues.browsing import Turn, explain, in_order, of_row
from journal.store.queues.counters import QueueCounters
from journal.store.queues.cursors import Candidate, QueueCursor
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry, QueueEntry
from journal.store.queues.holders import QueueHolders
from journal.store.queues.index import ReferenceIndex
from journal.store.queues.references import HELD, LOCKED, READY, READY_QUEUED, SCHEDULED, SETTLING, STATE
from journal.store.queues.tables import LOOKED_MAX, QueueTables

__all__ = ["AddressEntry", "BindingEntry", "MessageEntry", "QueueEntry", "QueueState"]

ALL_LEFT = -1
"""The first argument of `some_expired`, when no messages were looked at yet."""


class QueueState(QueueHolders):
    """All queues of a node. Not thread-safe. An operation that raises has changed nothing.

    A holder is a name that the broker chose. Arguments are record ids of queues and messages, or a queue's name.
    """

    def __init__(
        self,
        *,
        references_in_memory_max: int,
        queue_references_in_memory_max: int,
        index: ReferenceIndex | None = None,
    ) -> None:
        """With an `index`, the bounds hold for references that can be in the index: READY and SCHEDULED ones."""
        super().__init__(QueueTables(references_in_memory_max, queue_references_in_memory_max, index))

    def count_from_now(self) -> None:
        """Begin to count what happens in all queues."""
        for entry in self.queues():
            entry.counters = QueueCounters(entry.there)

    def remove_queue(self, name: str) -> Iterator[Sequence[int]]:
        """Remove a queue with its bindings now, and its references step by step while the result is iterated.

        Each step gives the ids of messages that have no reference left.

        Those messages stay known, without references, until `forget`. `arrive`, `withdraw`, `unlock` and `settled` do
        nothing for a reference whose queue is removed. Until its step, such a reference still counts for its message.
        Raises QueueMissingError, QueueInDoubtError (a transaction locks or adds references in the queue).
        """
        entry = self.queue(name)
        if entry.locked or entry.adding:
            raise QueueInDoubtError(f"transactions hold messages of queue {name!r}: settle them first")
        self.unlist_queue(entry)
        return self._tables.drop_queue(entry)

    # ---- acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(self, message_id: int, queue_id: int, holder: str = "", *, tx: int = 0) -> bool:
        """Called when an acknowledgement is accepted: the reference becomes SETTLING. True if it was the message's last
        reference; the message is then deleted in the same group.

        With `tx`, the reference is locked by that transaction, which commits. Arriving and locked references of the
        message count as references. Raises QueueMissingError, MessageMissingError (not in the queue, arriving, or
        settling), MessageHeldError (another holder has it, or a transaction locks it; without `holder`, if anybody
        holds it).
        """
        entry, row = self._present(message_id, queue_id)
        tables = self._tables
        if self._references.flags[row] & STATE == LOCKED:
            if not tx or tables.tx[row] != tx:
                raise self._locked(message_id, row)
        else:
            self._check_holder(message_id, row, holder)
        return self.acknowledge_row(entry, row)

    def to_acknowledge(
        self, message_id: int, queue_id: int, holder: str = ""
    ) -> tuple[int, bool, int, tuple[int, ...]]:
        """The row that `acknowledge` would settle outside of transactions. Raises what `acknowledge` raises.

        Returns the row, for `acknowledge_row`, and three facts about its message: whether it is durable, how many
        references are not being settled, and its chunks.
        """
        table = self._references
        message_row = table.row_of.get(message_id, -1)
        row = table.first[message_row] if message_row >= 0 else -1
        if row < 0 or table.queue[row] != queue_id or table.flags[row] != READY_QUEUED:
            _, row = self._present(message_id, queue_id)
            if table.flags[row] & STATE == LOCKED:
                raise self._locked(message_id, row)
            self._check_holder(message_id, row, holder)
            message_row = table.message[row]
        chunks = table.chunks.get(message_row, ()) if table.chunks else ()
        return row, table.is_durable(message_row), table.live[message_row], chunks

    def delivery_of(self, row: int) -> tuple[int, int]:
        """When the reference in a row was first delivered (0 if that is not known), and how often it came back."""
        return self._tables.first_delivered.get(row, 0), self._references.deliveries[row]

    def delivery_in(self, message_id: int, queue_id: int) -> tuple[int, int]:
        """`delivery_of` a reference. Raises MessageMissingError."""
        return self.delivery_of(self._present(message_id, queue_id)[1])

    def acknowledge_row(self, entry: QueueEntry, row: int) -> bool:
        """Acknowledge the row that `to_acknowledge` returned, if nothing has happened since."""
        tables, table = self._tables, self._references
        message_row = table.message[row]
        tables.leave(entry, row, SETTLING)
        tables.clear(row)
        entry.bytes -= table.size[message_row]
        entry.counters.gone += 1
        left = table.live[message_row] = table.live[message_row] - 1
        if left:
            return False
        table.delete(message_row)
        return True

    def settled(self, message_id: int, queue_id: int) -> None:
        """Called when an acknowledgement is durable: the reference is forgotten, and if it was the message's last one,
        the message too.

        Raises MessageMissingError if it was not acknowledged.
        """
        entry = self._queues.get(queue_id)
        if entry is None or entry.gone:
            return
        row = self._row_of(message_id, queue_id)
        if row < 0 or self._references.flags[row] & STATE != SETTLING:
            raise self._missing(message_id, queue_id)
        self._tables.drop_reference(entry, row)

    def settled_each(self, settled: Sequence[tuple[int, int]]) -> None:
        """Call `settled` for each (message, queue). Hot path: most messages are forgotten with their only reference in
        one step."""
        queues, drop_settled = self._queues, self._references.drop_settled
        for message_id, queue_id in settled:
            entry = queues.get(queue_id)
            row = -1 if entry is None or entry.gone else drop_settled(message_id, queue_id)
            if entry is None or row < 0:
                self.settled(message_id, queue_id)
                continue
            entry.counts[SETTLING] -= 1
            entry.not_away(row)

    def lock(self, message_id: int, queue_id: int, tx: int, holder: str = "") -> None:
        """Lock a reference, because a transaction's acknowledgement is accepted. Raises what `acknowledge` raises."""
        entry, row = self._present(message_id, queue_id)
        if self._references.flags[row] & STATE == LOCKED:
            raise self._locked(message_id, row)
        self._check_holder(message_id, row, holder)
        self._tables.leave(entry, row, LOCKED)
        self._tables.tx[row] = tx

    def unlock(self, message_id: int, queue_id: int) -> None:
        """Unlock a reference, because its transaction is rolled back. It is READY in its place, SCHEDULED, or HELD, as
        before.

        Raises MessageMissingError if it is not locked.
        """
        tables = self._tables
        if self._is_gone(queue_id):
            return
        entry, row = self._present(message_id, queue_id)
        if self._references.flags[row] & STATE != LOCKED:
            raise self._missing(message_id, queue_id)
        del tables.tx[row]
        if tables.holds.holder(row):
            tables.leave(entry, row, HELD)
        else:
            tables.come_back(entry, row)

    # ---- holding ---------------------------------------------------------------------------------------------------

    def take(self, queue_id: int, holder: str, now_ms: int) -> Delivery | None:
        """`take_all` for one reference; None if there is none."""
        taken = self.take_all(queue_id, holder, 1, now_ms)
        return taken[0] if taken else None

    def take_all(self, queue_id: int, holder: str, count: int, now_ms: int) -> list[Delivery]:
        """Make the first READY references HELD, at most `count`, after a batch of due references has become READY.
        Expired references are not taken.

        The result is shorter if no more are READY, or if too many references must be handled first: more than a batch
        has expired, or must be put back because the clock was set back. `next_due` is then in the past.
        """
        tables = self._tables
        entry = self.queue_of(queue_id)
        if not self.show_ready(now_ms):
            return []
        taken: list[Delivery] = []
        hold, away, delivered = tables.holds.add, entry.away, tables.delivered
        while len(taken) < count and (found := tables.first_to_deliver(entry, now_ms)) is not None:
            line, row = found
            line.pop(row, HELD)
            away.add(row)
            hold(row, holder)
            taken.append(delivered(entry, row, now_ms))
            entry.counts[READY] -= 1
            entry.counts[HELD] += 1
        if taken:
            entry.counters.delivered += len(taken)
            tables.holds.acted[holder] = now_ms
        return taken

    def show_ready(self, now_ms: int) -> bool:
        """Make a batch of due references READY. False if too many references must be put back first because the clock
        was set back."""
        tables = self._tables
        if (tables.schedule.count or tables.paged_scheduled) and 0 < tables.next_due() <= now_ms:
            tables.make_due(now_ms)
        return now_ms >= tables.passed_until or tables.show_again(now_ms)

    def cursor(self, queue: str, *, returning: bool) -> QueueCursor:
        """A cursor at the beginning of a queue. Raises QueueMissingError."""
        return QueueCursor(self._tables, self.queue(queue), returning=returning)

    def take_each(
        self, queue_id: int, candidates: Sequence[Candidate], holder: str, now_ms: int
    ) -> tuple[list[Delivery], list[Candidate]]:
        """Make those of the references HELD that are READY; returns them, and those that have expired."""
        tables, table, entry = self._tables, self._references, self.queue_of(queue_id)
        taken: list[Delivery] = []
        expired: list[Candidate] = []
        for candidate in candidates:
            row = self._row_of(candidate.message, queue_id)
            if row < 0 and tables.paged:
                row = tables.recall(candidate.message, queue_id)
            if row < 0 or table.flags[row] != READY_QUEUED:
                continue
            if 0 < table.expires[table.message[row]] <= now_ms:
                expired.append(candidate)
                continue
            tables.leave(entry, row, HELD)
            tables.holds.add(row, holder)
            taken.append(tables.delivered(entry, row, now_ms))
        if taken:
            entry.counters.delivered += len(taken)
            tables.holds.acted[holder] = now_ms
        return taken, expired

    def look_at_each(self, queue_id: int, candidates: Sequence[Candidate], now_ms: int) -> list[Delivery]:
        """Those of the references that are READY and have not expired. Nothing changes, and nothing comes to memory."""
        tables, table, entry = self._tables, self._references, self.queue_of(queue_id)
        found: list[Delivery] = []
        for _, _, message_id in candidates:
            row = self._row_of(message_id, queue_id)
            if row >= 0 and table.flags[row] == READY_QUEUED:
                if not 0 < table.expires[table.message[row]] <= now_ms:
                    found.append(tables.delivered(entry, row, 0))
            elif row < 0:
                found += [
                    tables.paged_delivery(entry, each)
                    for each in tables.find(message_id)
                    if each.queue == queue_id and not each.due and not 0 < each.expires <= now_ms
                ]
        return found

    def acquire(self, message_id: int, queue_id: int, holder: str, now_ms: int, *, checked: bool = False) -> Delivery:
        """Make a READY (or due) reference HELD. If `holder` holds the reference already, it is not held over any more.

        With `checked` the caller has checked the times of the reference already. Raises what `require_acquirable`
        raises.
        """
        entry, row = self.require_acquirable(message_id, queue_id, holder, None if checked else now_ms)
        tables = self._tables
        state = self._references.flags[row] & STATE
        if state == SCHEDULED:
            tables.leave(entry, row, HELD)
            del tables.due[row]
            tables.holds.add(row, holder)
        elif state == READY:
            tables.leave(entry, row, HELD)
            tables.holds.add(row, holder)
        else:
            tables.holds.claim(row)
        entry.counters.delivered += state != HELD
        tables.holds.acted[holder] = now_ms
        return tables.delivered(entry, row, now_ms)

    def require_acquirable(
        self, message_id: int, queue_id: int, holder: str, now_ms: int | None
    ) -> tuple[QueueEntry, int]:
        """The queue and the row of the reference that `acquire` would acquire. Raises what `acknowledge` raises,
        MessageHeldError if the reference is scheduled for later, and MessageExpiredError if its message has expired."""
        entry, row = self._present(message_id, queue_id)
        tables, table = self._tables, self._references
        state = table.flags[row] & STATE
        if state == LOCKED:
            raise self._locked(message_id, row)
        self._check_holder(message_id, row, holder)
        if now_ms is not None and state in (READY, SCHEDULED):
            require_in_time(message_id, table.expires[table.message[row]], tables.due.get(row, 0), now_ms)
        return entry, row

    def release(self, message_id: int, queue_id: int, holder: str = "", *, counts: bool = True) -> int:
        """Make a HELD reference READY in its place, or SCHEDULED if `schedule` was called meanwhile.

        Returns its number of deliveries, increased by one if this release `counts`.

        Without `holder` any holder's reference is released. Raises QueueMissingError, MessageMissingError,
        MessageHeldError (another holds it, nobody does, or a transaction locks it).
        """
        entry, row = self._present(message_id, queue_id)
        tables, table = self._tables, self._references
        state = table.flags[row] & STATE
        if state == LOCKED:
            raise self._locked(message_id, row)
        if state != HELD:
            raise MessageHeldError(f"message {message_id} is held by nobody", message_id)
        if holder:
            self._check_holder(message_id, row, holder)
        tables.holds.remove(row)
        entry.counters.released += 1
        count = table.deliveries[row] = table.deliveries[row] + counts
        tables.come_back(entry, row)
        return count

    def deliveries(self, message_id: int, queue_id: int, count: int) -> None:
        """Set the number of deliveries of a reference (less than 2^32). Raises QueueMissingError,
        MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        self._references.deliveries[row] = count

    # ---- times -----------------------------------------------------------------------------------------------------

    def schedule(self, message_id: int, queue_id: int, due: int) -> None:
        """Do not deliver a reference before `due` (0 means at once). For a HELD reference this takes effect at its
        release.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (a transaction locks it).
        """
        entry, row = self._present(message_id, queue_id)
        tables = self._tables
        state = self._references.flags[row] & STATE
        if state == LOCKED:
            raise self._locked(message_id, row)
        if state == SCHEDULED:
            tables.schedule.remove()
        if due:
            tables.due[row] = due
        else:
            tables.due.pop(row, None)
        if state == READY and due:
            tables.leave(entry, row, SCHEDULED)
            tables.schedule.add(row, due)
        elif state == SCHEDULED and due:
            tables.schedule.add(row, due)
        elif state == SCHEDULED:
            tables.make_ready(entry, row)
        if due and entry.watch is not None:
            entry.watch.tell()  # the next due time may be another one

    def due(self, now_ms: int) -> int:
        """Make a bounded batch of due references READY, the earliest first. Returns how many; `next_due` shows whether
        there are more.

        It also handles the expired references at which a `take` has stopped.
        """
        self._tables.pass_on(now_ms)
        return self._tables.make_due(now_ms)

    def next_due(self) -> int:
        """The time at which the next reference is due, or since which a stopped `take` can continue; 0 if there is
        neither."""
        tables = self._tables
        times = [tables.next_due(), tables.showing_since, *tables.passing.values()]
        return min((time for time in times if time), default=0)

    def expired(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """(message, queue) of READY and SCHEDULED references that have expired, in queues that are listed.

        First come those that no call has returned yet, then those that were returned longest ago. They are returned
        again until they are settled.
        """
        found: list[tuple[int, int]] = []
        left: int | None = ALL_LEFT
        while left is not None and len(found) < limit:
            more, left = self.some_expired(now_ms, limit - len(found), left)
            found += more
        return found

    def some_expired(self, now_ms: int, limit: int, left: int) -> tuple[list[tuple[int, int]], int | None]:
        """A part of `expired`, in a short step, and the argument `left` for the next part; None if there are no more.

        `left` is `ALL_LEFT` for the first part, and then the number of known messages that must still be looked at.
        """
        tables, at_once = self._tables, min(limit, LOOKED_MAX)
        if left == ALL_LEFT:
            left = len(tables.overdue)
        more, new = tables.find_expired(now_ms, at_once, self.has_queue)
        left += new
        found, looked = tables.waiting_overdue(now_ms, min(left, LOOKED_MAX), limit, self.has_queue)
        left -= looked
        return found, left if left or more else None

    # ---- looking ---------------------------------------------------------------------------------------------------

    @property
    def messages_in_memory(self) -> int:
        return len(self._references.row_of)

    @property
    def references_in_memory(self) -> int:
        return self._references.references

    def browse(self, queue_id: int, turn: Turn = nullcontext) -> Iterator[ReferenceInfo]:
        """The references of a queue in delivery order, without arriving ones. `turn` is entered for each step.

        Without a `turn`, the result must be iterated before the state changes.
        """
        return in_order(self._tables, self.queue_of(queue_id), turn)

    def reference(self, message_id: int, queue_id: int) -> ReferenceInfo:
        """A reference; if it is in the index, it is brought to memory.

        Raises QueueMissingError, MessageMissingError (it is not in the queue, arriving, or settling).
        """
        _, row = self._present(message_id, queue_id)
        return of_row(self._tables, row)

    def explain(self, message_id: int) -> list[ReferenceInfo]:
        """All references of a message; one that a transaction adds is LOCKED by it. Raises MessageMissingError."""
        self.message(message_id)
        return explain(self._tables, message_id)


def require_in_time(message_id: int, expires: int, due: int, now_ms: int) -> None:
    """Raises MessageHeldError for a message that is due later, MessageExpiredError for one that has expired."""
    if due > now_ms:
        raise MessageHeldError(f"message {message_id} is scheduled for {due}", message_id)
    if 0 < expires <= now_ms:
        raise MessageExpiredError(f"message {message_id} has expired at {expires}", message_id)
