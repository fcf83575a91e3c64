"""Steps that take a reference from one state to another, together with its counts, line, schedule and hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from journal.store.model import Delivery
from journal.store.queues.entry import QueueEntry
from journal.store.queues.index import Paged
from journal.store.queues.lines import Line
from journal.store.queues.paging import PagedTables, latest_first, paged_facts
from journal.store.queues.references import FREE, QUEUED, READY, SCHEDULED, SETTLING, STATE

DUE_MAX = 250
"""The most references that one step makes READY; in memory that takes less than a millisecond."""
LOOKED_MAX = 250
"""The most expired messages that one step looks at, to find those that still wait."""
PASSED_MAX = 250
"""The largest number of expired references that one take passes over."""
SHOWN_MAX = 250
"""The most references that one step puts back after the clock was set back."""
DROPPED_MAX = 40
"""The most references of a removed queue that one step forgets, with their messages."""


class QueueTables(PagedTables):
    """The tables, and the steps from which QueueState's operations are made."""

    def make_ready(self, entry: QueueEntry, row: int) -> None:
        """Make a reference READY in its place, from any other state."""
        table = self.references
        line = self.line_of(entry, row)
        in_memory = self.takes_back(entry, line, table.place(row))
        entry.counts[table.flags[row] & STATE] -= 1
        entry.counts[READY] += 1
        if entry.watch is not None:
            entry.watch.has_something(entry)
        entry.not_away(row)
        for cursor in entry.cursors:
            cursor.is_ready(line.rank, table.place(row), table.id[table.message[row]])
        if in_memory:
            line.put_back(row)
        else:
            self.page_out(entry, line, row)

    def make_scheduled(self, entry: QueueEntry, row: int) -> None:
        """Make a reference SCHEDULED for its due time, from any state but READY and SCHEDULED."""
        full, flags = self.is_full(entry), self.references.flags
        entry.counts[flags[row] & STATE] -= 1
        entry.counts[SCHEDULED] += 1
        flags[row] = flags[row] & QUEUED | SCHEDULED
        if full:
            self.page_out(entry, self.line_of(entry, row), row)
        else:
            self.schedule.add(row, self.due[row])
        if entry.watch is not None:
            entry.watch.tell()  # the next due time may be another one

    def come_back(self, entry: QueueEntry, row: int) -> None:
        """Make a HELD or LOCKED reference READY or SCHEDULED."""
        if row in self.due:
            self.make_scheduled(entry, row)
        else:
            self.make_ready(entry, row)

    def leave(self, entry: QueueEntry, row: int, state: int) -> None:
        """Change a reference from any other state to one that is not READY."""
        flags = self.references.flags
        old = flags[row] & STATE
        if old == READY:
            if flags[row] == READY:
                self.passed.remove()
            self.line_of(entry, row).leave(row, state)
            entry.away.add(row)
        else:
            flags[row] = flags[row] & QUEUED | state
            if old == SCHEDULED:
                self.schedule.remove()
        entry.counts[old] -= 1
        entry.counts[state] += 1

    def clear(self, row: int) -> None:
        """Forget the times, the holder and the transaction of a row."""
        if self.first_delivered:
            self.first_delivered.pop(row, None)
        if self.due:
            self.due.pop(row, None)
        if self.tx:
            self.tx.pop(row, None)
        if self.holds:
            self.holds.remove(row)

    def delivered(self, entry: QueueEntry, row: int, now_ms: int) -> Delivery:
        """Called when a reference is handed out: note the time, if it is the first delivery for sure."""
        table = self.references
        deliveries = table.deliveries[row]
        loaded = table.high[row] < self.loaded_before
        if now_ms and not (loaded or deliveries):
            self.first_delivered.setdefault(row, now_ms)
        again = deliveries > 0 or (loaded and not entry.config.journaled_acquisition)
        message_row = table.message[row]
        return Delivery(table.id[message_row], deliveries, again, message_row in table.chunks)

    def paged_delivery(self, entry: QueueEntry, paged: Paged) -> Delivery:
        """What `delivered` returns, of a reference that is in the index."""
        *_, chunks, _, deliveries, _ = paged_facts(paged.data)
        again = deliveries > 0 or (paged.place >> 64 < self.loaded_before and not entry.config.journaled_acquisition)
        return Delivery(paged.message, deliveries, again, bool(chunks))

    def drop_reference(self, entry: QueueEntry, row: int) -> None:
        """Forget a reference that is not READY. If it was the last one in memory, its message is forgotten there
        too."""
        table = self.references
        entry.counts[table.flags[row] & STATE] -= 1
        entry.not_away(row)
        message_row = table.message[row]
        table.drop_reference(row)
        if table.first[message_row] == -1 and (table.live[message_row] or table.is_deleted(message_row)):
            self.drop_message(message_row)

    def drop_queue(self, entry: QueueEntry) -> Iterator[array[int]]:
        """Remove a queue with all its references, in steps. Each step returns the ids of the messages that have no
        other reference; those stay known, without references.

        The queue counts as removed from now on: only these steps change its references.
        """
        entry.gone = True
        if entry.watch is not None:
            entry.watch.has_something(entry)
        self.passing.pop(entry.record_id, None)
        lines = [each for line in entry.lines for each in (line.rows(), line.rows_beside())]
        return self._drop_in_steps(entry, chain([*entry.all_away()], *lines))

    def _drop_in_steps(self, entry: QueueEntry, rows: Iterator[int]) -> Iterator[array[int]]:
        while part := [*islice(rows, DROPPED_MAX)]:
            yield self._drop_rows(entry, part)
        if entry.paged and self.index is not None:
            paged = chain.from_iterable(self.index.scan(entry.record_id))
            while some := [*islice(paged, DROPPED_MAX)]:
                yield self.drop_paged(entry, some)
        del self.queues[entry.record_id]

    def _drop_rows(self, entry: QueueEntry, rows: Iterable[int]) -> array[int]:
        table, orphans = self.references, array("q")
        for row in rows:
            state = table.flags[row] & STATE
            if state == FREE or table.queue[row] != entry.record_id:
                continue  # the row was withdrawn meanwhile, or had left from the middle of its line
            message_row = table.message[row]
            message_id = table.id[message_row]
            self.leave(entry, row, SETTLING)
            self.clear(row)
            if state != SETTLING:
                table.live[message_row] -= 1
            lives = table.live[message_row]
            self.drop_reference(entry, row)
            if not lives and state != SETTLING:
                orphans.append(message_id)
                table.delete(message_row)
        return orphans

    def first_to_deliver(self, entry: QueueEntry, now_ms: int) -> tuple[Line, int] | None:
        """The first READY row that has not expired, with its line. Expired rows before it are passed over: they leave
        the line.

        After `PASSED_MAX` such rows the result is None, and the queue is put into `passing`, so that the next call
        continues. A paused queue has none. Hot path.
        """
        if entry.config.paused:
            self.passing.pop(entry.record_id, None)
            return None
        table, passed = self.references, 0
        for line in entry.lines:
            while (row := self.first(entry, line)) >= 0:
                expires = table.expires[table.message[row]]
                if not expires or expires > now_ms:
                    if self.passing:
                        self.passing.pop(entry.record_id, None)
                    return line, row
                if passed == PASSED_MAX:
                    self.passing[entry.record_id] = expires
                    return None
                passed += 1
                self._pass_over(entry, line, row, expires)
        self.passing.pop(entry.record_id, None)
        return None

    def _pass_over(self, entry: QueueEntry, line: Line, row: int, expires: int) -> None:
        line.pop(row, READY)
        if self.is_full(entry):
            self.page_out(entry, line, row, passed=True)
            self.passed_until = max(self.passed_until, expires)
        else:
            self.set_aside(entry, row, expires)

    def show_again(self, now_ms: int) -> bool:
        """After the clock was set back, references that a take has passed over as expired may not have expired. Put a
        batch of them back into their lines; returns True if none is left."""
        rows, more = self.passed.pop(latest_first(now_ms + 1), SHOWN_MAX)
        for row in rows:
            entry = self.queues[self.references.queue[row]]
            if not entry.gone:
                self.passed.remove()
                self.make_ready(entry, row)
        left = SHOWN_MAX - len(rows)
        if not more and self.paged:
            more = self.take_passed(now_ms, left) == left
        if not more:
            self.passed_until = now_ms
        self.showing_since = now_ms if more else 0
        return not more

    def pass_on(self, now_ms: int) -> None:
        """Continue a take that has stopped among expired messages, and tell who waits of the first other message; if
        the clock was set back, put the next references back that a take has passed over."""
        if now_ms < self.passed_until:
            self.show_again(now_ms)
        for queue_id in self.passing:
            entry = self.queues[queue_id]
            if self.first_to_deliver(entry, now_ms) is not None and entry.watch is not None:
                entry.watch.has_something(entry)
            return

    def make_due(self, now_ms: int) -> int:
        """Make references READY that are due by now, the earliest first: at most `DUE_MAX` in memory and as many in the
        index. Returns their number.

        The others are left for the next call, so that no caller waits longer than this for the lock.
        """
        count = 0
        for row in self.schedule.pop(now_ms, DUE_MAX)[0]:
            entry = self.queues[self.references.queue[row]]
            if not entry.gone:
                self.schedule.remove()
                del self.due[row]
                self.make_ready(entry, row)
                count += 1
        if self.paged_scheduled:
            count += self.take_due(now_ms, DUE_MAX)
        return count

    def next_due(self) -> int:
        """When the next reference is due; 0 if none is scheduled."""
        times = [self.schedule.next()] if self.schedule.count else []
        if self.paged_scheduled and self.index is not None:
            times.append(self.index.next_due())
        return min((time for time in times if time), default=0)

    def find_expired(self, now_ms: int, limit: int, is_there: Callable[[int], bool]) -> tuple[bool, int]:
        """Find up to `limit` further expired messages, and put them before those in `overdue`.

        Messages in the index are only found through queues that exist. Returns whether there may be more, and how many
        are new in `overdue`.
        """
        table = self.references
        rows, more = self.expiry.pop(now_ms, limit)
        new = [table.id[message_row] for message_row in rows]
        count = len(new)
        if self.paged:
            for message_id in new:  # the message is looked at once, with its references in the index
                self.recall_all(message_id)
        if self.paged and self.index is not None and count < limit:
            for message_id, queue_id in self.index.expired(now_ms):
                if not is_there(queue_id):
                    continue
                self.recall_all(message_id)
                new.append(message_id)
                count += 1
                if count == limit:
                    break
        known = len(self.overdue)
        for message_id in reversed(new):
            if message_id not in self.overdue:  # a message that was found in the index is found once more in memory
                self.overdue[message_id] = None
                self.overdue.move_to_end(message_id, last=False)
        return more or count > 0, len(self.overdue) - known

    def waiting_overdue(
        self, now_ms: int, looks: int, limit: int, is_there: Callable[[int], bool]
    ) -> tuple[list[tuple[int, int]], int]:
        """Look at up to `looks` messages of `overdue`, and move them to its end.

        Returns (message, queue) of their READY and SCHEDULED references in existing queues, and the number of messages
        that were looked at. A message that has not expired after all, because the clock was set back, is left out.
        """
        table = self.references
        found: list[tuple[int, int]] = []
        looked = 0
        while looked < looks and len(found) < limit and self.overdue:
            message_id = next(iter(self.overdue))
            self.overdue.move_to_end(message_id)
            looked += 1
            message_row = table.row_of[message_id]
            if table.expires[message_row] > now_ms:
                continue
            for row in table.of_message(message_row):
                if table.flags[row] & STATE in (READY, SCHEDULED) and is_there(table.queue[row]):
                    found.append((message_id, table.queue[row]))
        return found[:limit], looked if self.overdue else looks
