"""Runs: many messages of one queue that are handled at once, column by column. Each message has only this reference.

A run keeps its rows as long as its queue exists: if a message gets another queue or a holder meanwhile, its row stays
the same. Hot path: steps that are possible for all messages at once are not done for each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from journal.store.model import PRIORITY_MAX
from journal.store.queues.columns import fill, gather, in_order, same_numbers, together
from journal.store.queues.entry import QueueEntry
from journal.store.queues.lines import Line
from journal.store.queues.messages import QueueMessages
from journal.store.queues.references import (
    ARRIVING,
    DELETED,
    DURABLE,
    HELD,
    PRIORITY,
    QUEUED,
    READY,
    READY_QUEUED,
    SETTLING,
    STATE,
)

_DELETED = bytes(mark | DELETED for mark in range(256))
_SETTLING = bytes(flag & QUEUED | SETTLING for flag in range(256))
"""The next value of the flag of a reference, by its value before, when the reference is acknowledged."""
_IS_DURABLE = bytes(mark & DURABLE for mark in range(256))


class Run(NamedTuple):
    """The rows of a run. They are in delivery order when the run arrives, and in any order when it leaves."""

    messages: Sequence[int]
    references: Sequence[int]


class QueueRuns(QueueMessages):
    """Operations on runs of messages that arrive or leave together."""

    def store_routed(
        self,
        message_ids: Sequence[int],
        address_id: int,
        queue_id: int,
        *,
        sizes: Sequence[int],
        timestamps: Sequence[int],
        priorities: Sequence[int],
        expires: Sequence[int] = (),
        dues: Sequence[int] = (),
    ) -> Run:
        """Call `store` for durable messages with new ids that are not large, and `route` each to one queue, in one
        step.

        Without `expires` or `dues` no message has such a time.
        """
        entry, tables, table = self._queues[queue_id], self._tables, self._references
        if not any(expires):
            expires = ()
        message_rows, rows = table.add_routed(
            message_ids, address_id, priorities, sizes, expires, timestamps, queue_id, ARRIVING
        )
        if expires:
            for message_row, each in zip(message_rows, expires, strict=True):
                if each:
                    tables.expiry.add(message_row, each)
        if any(dues):
            for message_row, row, due in zip(message_rows, rows, dues, strict=True):
                if due:
                    table.due[message_row] = tables.due[row] = due
        entry.counts[ARRIVING] += len(rows)
        entry.bytes += sum(sizes)
        entry.runs[rows[0]] = rows
        return Run(message_rows, rows)

    def arrive_run(self, run: Run, queue_id: int) -> bool:
        """Call `arrive` for the run that `store_routed` returned, in its order, in one step. False if the queue is
        removed."""
        entry, tables, table = self._queues.get(queue_id), self._tables, self._references
        if entry is None or entry.gone:
            return False
        (message_rows, rows), count = run, len(run.references)
        if (tables.due and not tables.due.keys().isdisjoint(rows)) or (
            tables.index is not None and tables.may_fill(entry, count)
        ):
            for message_row in message_rows:
                self.arrive(table.id[message_row], queue_id)
            return True
        place = tables.next_high
        tables.next_high = place + count
        fill(table.high, rows, array("Q", range(place, place + count)))
        fill(table.low, rows, same_numbers(table.low.typecode, 0, count))
        entry.counts[ARRIVING] -= count
        entry.counts[READY] += count
        if entry.watch is not None:
            entry.watch.has_something(entry)
        entry.not_away_all(rows)
        marks = gather(table.marks, message_rows)
        if marks.count(marks[0]) == count:
            entry.line(PRIORITY_MAX - (marks[0] & PRIORITY)).append_all(rows, (place + count - 1) << 64)
        else:
            for row, mark in zip(rows, marks, strict=True):
                entry.line(PRIORITY_MAX - (mark & PRIORITY)).append(row, table.high[row] << 64)
        return True

    def to_acknowledge_run(self, message_ids: Sequence[int], queue_id: int, holder: str) -> Run | None:
        """The rows that `acknowledge` would settle for these messages, if each has its last reference in this queue, is
        durable and is not large.

        None if one of them is not like that, or is named twice.
        """
        table, held_by = self._references, self._tables.holds.holder
        count = len(message_ids)
        try:
            found = [*map(table.row_of.__getitem__, message_ids)]
        except KeyError:
            return None
        run = in_order(found)
        if run is None and len({*found}) < count:
            return None
        message_rows = run or together(found)
        rows = together(gather(table.first, message_rows))
        if (
            (rows[0] if type(rows) is range else min(rows)) < 0
            or gather(table.queue, rows) != same_numbers(table.queue.typecode, queue_id, count)
            or gather(table.live, message_rows) != same_numbers(table.live.typecode, 1, count)
            or not all(gather(table.marks, message_rows).translate(_IS_DURABLE))
            or (table.chunks and not table.chunks.keys().isdisjoint(message_rows))
        ):
            return None
        flags = gather(table.flags, rows)
        if flags.count(READY_QUEUED) != count:
            for row, flag in zip(rows, flags, strict=True):
                if flag != READY_QUEUED and (flag & STATE != HELD or held_by(row) != holder):
                    return None
        return Run(message_rows, rows)

    def deliveries_of_run(self, run: Run) -> Iterator[tuple[int, int, int]]:
        """The deliveries of a run, in its order: for how many messages, when they were first delivered (0 if that is
        not known), and how often they came back."""
        rows, first = run.references, self._tables.first_delivered
        counts = gather(self._references.deliveries, rows)
        times = [first.get(row, 0) for row in rows] if first else [0] * len(rows)
        if times.count(times[0]) == len(rows) == counts.count(counts[0]):
            yield len(rows), times[0], counts[0]
            return
        for (time, count), same in groupby(zip(times, counts, strict=True)):
            yield sum(1 for _ in same), time, count

    def acknowledge_run(self, entry: QueueEntry, run: Run) -> None:
        """Acknowledge the run that `to_acknowledge_run` returned, if nothing has happened since."""
        tables, table, counts = self._tables, self._references, entry.counts
        (message_rows, rows), count = run, len(run.references)
        flags, marks = gather(table.flags, rows), gather(table.marks, message_rows)
        fill(table.live, message_rows, same_numbers(table.live.typecode, 0, count))
        fill(table.marks, message_rows, marks.translate(_DELETED))
        fill(table.flags, rows, flags.translate(_SETTLING))
        ready = flags.count(READY_QUEUED)
        if ready == count == marks.count(marks[0]):
            entry.line(PRIORITY_MAX - (marks[0] & PRIORITY)).left(rows)
        elif ready:
            were_ready = [row for row, flag in zip(rows, flags, strict=True) if flag == READY_QUEUED]
            leaving: dict[Line, list[int]] = {}
            for row in were_ready:
                leaving.setdefault(tables.line_of(entry, row), []).append(row)
            for line, leaving_it in leaving.items():
                line.left(leaving_it)
        if ready == count:
            entry.runs[rows[0]] = rows
        else:  # rows that were HELD were in no line's order before
            entry.away.update(rows)
        counts[READY] -= ready
        counts[HELD] -= count - ready
        entry.counters.gone += count
        counts[SETTLING] += count
        entry.bytes -= sum(gather(table.size, message_rows))
        if tables.due or tables.holds:
            for row in rows:
                tables.clear(row)

    def settled_run(self, run: Run, queue_id: int) -> None:
        """Call `settled` for a run that `acknowledge_run` has acknowledged, in one step."""
        entry, tables, table = self._queues.get(queue_id), self._tables, self._references
        if entry is None or entry.gone:
            return
        message_rows, rows = run
        if (
            gather(table.expires, message_rows) != same_numbers(table.expires.typecode, 0, len(rows))
            or (table.due and not table.due.keys().isdisjoint(message_rows))
            or (table.paged and not table.paged.keys().isdisjoint(message_rows))
        ):
            for row in rows:
                tables.drop_reference(entry, row)
            return
        table.drop_all_settled(message_rows, rows)
        entry.counts[SETTLING] -= len(rows)
        entry.not_away_all(rows)
