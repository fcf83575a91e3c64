"""Queues as they stand: what is ready, scheduled, held, locked, arriving and settling, and in which order.

Pure: time enters as an argument, nothing is read or written but the index of what does not fit in memory. The store's
lock guards it. What an operation adds arrives when it is durable; what it takes away, it takes when it is accepted. The
order of a queue is (priority, place): places are given in order of arrival, which is the order of the WAL, and a load
takes them from there.

    route -> ARRIVING -> arrive -> READY <-> HELD (take, acquire, release)     SCHEDULED -> READY (due)
                                   READY, SCHEDULED, HELD <-> LOCKED (lock, unlock: a transaction's acknowledge)
                                   READY, SCHEDULED, HELD, LOCKED -> SETTLING (acknowledge) -> gone (settled)

Hot path: store, route, arrive, take, acknowledge and settled work on columns of numbers
(`journal.store.queues.references`), and runs of messages column by column (`journal.store.queues.runs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice

from journal.errors import MessageExpiredError, MessageHeldError, QueueInDoubtError
from journal.store.model import Delivery, ReferenceInfo
from journal.store.queues.browsing import Turn, explain, in_order, of_row
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry, QueueEntry
from journal.store.queues.following import QueueFollowing
from journal.store.queues.references import (
    HELD,
    LOCKED,
    READY,
    READY_QUEUED,
    SCHEDULED,
    SETTLING,
    STATE,
    ReferenceIndex,
)
from journal.store.queues.tables import LOOKED_MAX, QueueTables

__all__ = ["AddressEntry", "BindingEntry", "MessageEntry", "QueueEntry", "QueueState"]

ALL_LEFT = -1
"""Of the expired, when nobody has looked yet."""


class QueueState(QueueFollowing):
    """All queues of a node. Not thread-safe. What raises has changed nothing.

    A holder is a name that the broker chose. Queues and messages are told by their record ids, queues that somebody
    names by their name.
    """

    def __init__(
        self,
        *,
        references_in_memory_max: int,
        queue_references_in_memory_max: int,
        index: ReferenceIndex | None = None,
    ) -> None:
        """The bounds hold for references that can wait elsewhere, with an index: READY and SCHEDULED ones."""
        super().__init__(QueueTables(references_in_memory_max, queue_references_in_memory_max, index))

    def remove_queue(self, name: str) -> Iterator[Sequence[int]]:
        """Drop a queue with its bindings now, and its references in steps, to be gone through: each tells message ids
        that have no reference left.

        Those messages stay known, without references, until `forget`. arrive, withdraw, unlock and settled of a
        reference that went with its queue do nothing. Until its step a reference counts as one of its message's.
        Raises QueueMissingError, QueueInDoubtError (a transaction locks or adds references of it).
        """
        entry = self.queue(name)
        if entry.locked or entry.adding:
            raise QueueInDoubtError(f"transactions hold messages of queue {name!r}: settle them first")
        self.unlist_queue(entry)
        return self._tables.drop_queue(entry)

    # ---- going -----------------------------------------------------------------------------------------------------

    def acknowledge(self, message_id: int, queue_id: int, holder: str = "", *, tx: int = 0) -> bool:
        """Accepted: SETTLING. True: it was the message's last reference, which is deleted in the same group.

        With `tx`: the reference is locked by that transaction, which commits. Arriving and locked references count.
        Raises QueueMissingError, MessageMissingError (not there, arriving, or settling), MessageHeldError (another
        holds it, or a transaction locks it; without `holder`, if anybody holds it).
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
        """What `acknowledge` would settle, without a `tx`: its row, for `acknowledge_row`; and of its message whether
        it is durable, its references that are not settling, its chunks. Raises as `acknowledge`."""
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

    def acknowledge_row(self, entry: QueueEntry, row: int) -> bool:
        """`acknowledge` of what `to_acknowledge` gave, if nothing has happened since."""
        tables, table = self._tables, self._references
        message_row = table.message[row]
        tables.leave(entry, row, SETTLING)
        tables.clear(row)
        entry.bytes -= table.size[message_row]
        left = table.live[message_row] = table.live[message_row] - 1
        if left:
            return False
        table.delete(message_row)
        return True

    def settled(self, message_id: int, queue_id: int) -> None:
        """The acknowledge is durable: the reference is forgotten, and with its last one the message.

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
        """`settled` of each (message, queue). Hot path: most messages go with their only reference, in one step."""
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
        """A transaction's acknowledge is accepted. Raises as `acknowledge`."""
        entry, row = self._present(message_id, queue_id)
        if self._references.flags[row] & STATE == LOCKED:
            raise self._locked(message_id, row)
        self._check_holder(message_id, row, holder)
        self._tables.leave(entry, row, LOCKED)
        self._tables.tx[row] = tx

    def unlock(self, message_id: int, queue_id: int) -> None:
        """Its rollback: READY in its place, SCHEDULED, or HELD, as before. Raises MessageMissingError (not locked)."""
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
        """The first READY one becomes HELD. A batch of what is due is READY first; what expired is not handed out.

        None: there is none, or more than a batch has expired before it, or is to be put back as a clock was set back;
        `next_due` has passed then.
        """
        tables, table = self._tables, self._references
        entry = self.queue_of(queue_id)
        if (tables.schedule.count or tables.paged_scheduled) and 0 < tables.next_due() <= now_ms:
            tables.make_due(now_ms)
        if now_ms < tables.passed_until and not tables.show_again(now_ms):
            return None
        found = tables.first_to_deliver(entry, now_ms)
        if found is None:
            return None
        line, row = found
        line.pop(row, HELD)
        entry.away.add(row)
        entry.counts[READY] -= 1
        entry.counts[HELD] += 1
        tables.holds.add(row, holder)
        return Delivery(table.id[table.message[row]], table.deliveries[row])

    def acquire(self, message_id: int, queue_id: int, holder: str, now_ms: int | None) -> Delivery:
        """A READY (or due) one becomes HELD; one that `holder` holds already is not held over any more.

        Without `now_ms` its times were looked at before. Raises as `acknowledge`, MessageHeldError for one that is
        scheduled for later, MessageExpiredError for one that has expired.
        """
        entry, row = self._present(message_id, queue_id)
        tables, table = self._tables, self._references
        state = table.flags[row] & STATE
        if state == LOCKED:
            raise self._locked(message_id, row)
        self._check_holder(message_id, row, holder)
        if now_ms is not None and state in (READY, SCHEDULED):
            require_in_time(message_id, table.expires[table.message[row]], tables.due.get(row, 0), now_ms)
        if state == SCHEDULED:
            tables.leave(entry, row, HELD)
            del tables.due[row]
            tables.holds.add(row, holder)
        elif state == READY:
            tables.leave(entry, row, HELD)
            tables.holds.add(row, holder)
        else:
            tables.holds.claim(row)
        return Delivery(message_id, table.deliveries[row])

    def release(self, message_id: int, queue_id: int, holder: str = "", *, counts: bool = True) -> int:
        """A HELD one becomes READY in its place (SCHEDULED if `schedule` said so meanwhile): its deliveries, one more
        if that counts.

        Without `holder`: whoever holds it. Raises QueueMissingError, MessageMissingError, MessageHeldError (another
        holds it, nobody does, or a transaction locks it).
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
        count = table.deliveries[row] = table.deliveries[row] + counts
        tables.come_back(entry, row)
        return count

    def deliveries(self, message_id: int, queue_id: int, count: int) -> None:
        """Set how often it was delivered (less than 2^32). Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        self._references.deliveries[row] = count

    def held_by(self, holder: str) -> list[tuple[int, int]]:
        """(message, queue) that it holds, in order of acquisition; those that a transaction has locked are not."""
        return self._held_of(self._tables.holds.rows(holder))

    def rows_of(self, holder: str) -> Sequence[int]:
        """Of all that it holds, for `let_go`: what that costs is little for each."""
        return self._tables.holds.rows(holder)

    def let_go(self, holder: str, rows: Iterable[int], *, counts: bool) -> list[tuple[int, int]]:
        """(message, queue) of these that it still holds, to be released. What transactions have locked is held over."""
        tables, flags = self._tables, self._references.flags
        own = [row for row in rows if tables.holds.holder(row) == holder]
        for row in own:
            if flags[row] & STATE == LOCKED:
                tables.holds.hold_over(row, counts=counts)
        return self._held_of(own)

    def _held_of(self, rows: Iterable[int]) -> list[tuple[int, int]]:
        table = self._references
        return [(table.id[table.message[row]], table.queue[row]) for row in rows if self._is_held(row)]

    def _is_held(self, row: int) -> bool:
        table = self._references
        return table.flags[row] & STATE == HELD and not self._queues[table.queue[row]].gone

    def hold_all_over(self) -> None:
        """After a load: all that is held, locked ones included, is held over until its holder comes back for it."""
        self._tables.holds.hold_all_over()

    def hold_over(self, message_id: int, queue_id: int, *, counts: bool) -> None:
        """The same of one that is held. Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        self._tables.holds.hold_over(row, counts=counts)

    def held_over(self, holder: str, limit: int) -> list[tuple[int, int]]:
        """The first (message, queue) that it has held over, as `held_by`."""
        return self._held_of(islice(filter(self._is_held, self._tables.holds.over(holder)), limit))

    def held_over_counts(self, message_id: int, queue_id: int) -> bool | None:
        """Whether it counts that one that is held over is given back; None: it is not held over, as nothing is of a
        queue that is gone. Raises MessageMissingError."""
        if self._is_gone(queue_id):
            return None
        _, row = self._present(message_id, queue_id)
        return self._tables.holds.over_counts(row)

    def reattach(self, holder: str) -> Sequence[int]:
        """A holder is back for all that it holds, which stays held: as `rows_of`, for `held_of`."""
        self._tables.holds.claim_all(holder)
        return self.rows_of(holder)

    def held_of(self, holder: str, rows: Iterable[int]) -> list[tuple[int, int]]:
        """(message, queue) of these that it still holds, of queues that are listed."""
        holder_of = self._tables.holds.holder
        own = self._held_of(row for row in rows if holder_of(row) == holder)
        return [held for held in own if self.has_queue(held[1])]

    def claim(self, message_id: int, queue_id: int, holder: str) -> None:
        """A holder is back for one that it holds, if it does. Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        if self._tables.holds.holder(row) == holder:
            self._tables.holds.claim(row)

    def holders(self) -> list[str]:
        """Whoever holds something, or holds what a transaction has locked."""
        return self._tables.holds.holders()

    # ---- times -----------------------------------------------------------------------------------------------------

    def schedule(self, message_id: int, queue_id: int, due: int) -> None:
        """Not delivered before `due` (0: at once). Of a HELD one it takes effect at release.

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

    def due(self, now_ms: int) -> int:
        """Make READY what is due by now, a bounded batch, the earliest first; how many. `next_due` says if more is.

        Also goes on to pass what has expired where a `take` stopped.
        """
        self._tables.pass_on(now_ms)
        return self._tables.make_due(now_ms)

    def next_due(self) -> int:
        """When the next one is due, or since when a `take` could go on; 0: none is scheduled."""
        tables = self._tables
        times = [tables.next_due(), tables.showing_since, *tables.passing.values()]
        return min((time for time in times if time), default=0)

    def expired(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """(message, queue) of READY and SCHEDULED references that have expired, in queues that are listed: first those
        that were never told, then those that were told longest ago. They are told again until they are settled."""
        found: list[tuple[int, int]] = []
        left: int | None = ALL_LEFT
        while left is not None and len(found) < limit:
            more, left = self.some_expired(now_ms, limit - len(found), left)
            found += more
        return found

    def some_expired(self, now_ms: int, limit: int, left: int) -> tuple[list[tuple[int, int]], int | None]:
        """A part of them, from little work, and what is left, which the next part is given; None: nothing is.

        The first one is given `ALL_LEFT`, others how many messages are still to be looked at that were known before.
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
        """References in delivery order (none that arrive). `turn` is entered for each step; without it, to be consumed
        before the state changes."""
        return in_order(self._tables, self.queue_of(queue_id), turn)

    def reference(self, message_id: int, queue_id: int) -> ReferenceInfo:
        """One reference, which is brought to memory. Raises QueueMissingError, MessageMissingError (it is not there,
        arriving, or settling)."""
        _, row = self._present(message_id, queue_id)
        return of_row(self._tables, row)

    def explain(self, message_id: int) -> list[ReferenceInfo]:
        """Every reference; one that arrives in a transaction is LOCKED by it. Raises MessageMissingError."""
        self.message(message_id)
        return explain(self._tables, message_id)


def require_in_time(message_id: int, expires: int, due: int, now_ms: int) -> None:
    """Raises MessageHeldError for what is due later, MessageExpiredError for what has expired."""
    if due > now_ms:
        raise MessageHeldError(f"message {message_id} is scheduled for {due}", message_id)
    if 0 < expires <= now_ms:
        raise MessageExpiredError(f"message {message_id} has expired at {expires}", message_id)
