"""A cursor remembers how far a reader has come in a queue, so that messages that the reader does not want are looked at
once and not at every take.

In each line (the messages of one priority) new messages come at the end. So the cursor keeps one place for each line,
and everything READY up to that place was handed out by `next`. A message that becomes READY again at or before that
place (it was released, is due, or its transaction was rolled back) is told to the cursor, which hands it out first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, merge
from itertools import islice
from typing import NamedTuple

from journal.store.queues.entry import QueueEntry
from journal.store.queues.lines import Line
from journal.store.queues.paging import PagedTables


class Candidate(NamedTuple):
    """A message that was READY when the cursor came to it."""

    rank: int
    place: int
    message: int


class QueueCursor:
    """A place in every line of one queue. The store's lock guards it."""

    def __init__(self, tables: PagedTables, entry: QueueEntry, *, returning: bool) -> None:
        """With `returning`, messages that become READY again before its place are handed out again."""
        self._tables = tables
        self._entry = entry
        self._returning = returning
        self._passed: dict[int, int] = {}
        """The last place that was handed out in each line, by rank."""
        self._returned: dict[int, list[Candidate]] = {}
        """Heaps of messages before these places that must be handed out again, by rank."""
        self._waiting: set[int] = set()
        """The messages in these heaps."""
        entry.cursors.append(self)

    def close(self) -> None:
        """The reader is gone. Calling it again does nothing."""
        if self in self._entry.cursors:
            self._entry.cursors.remove(self)

    def begin_again(self) -> None:
        """Hand out everything that is READY once more."""
        self._passed.clear()
        self._returned.clear()
        self._waiting.clear()

    def is_ready(self, rank: int, place: int, message_id: int) -> None:
        """Called when a message that was not READY has become READY."""
        if self._returning and place <= self._passed.get(rank, -1):
            self.hand_back([Candidate(rank, place, message_id)])

    def hand_back(self, candidates: Iterable[Candidate]) -> None:
        """Hand these messages out again, before all others of their line."""
        for candidate in candidates:
            if candidate.message not in self._waiting:
                self._waiting.add(candidate.message)
                heappush(self._returned.setdefault(candidate.rank, []), candidate)

    def next(self, limit: int) -> list[Candidate]:
        """The next messages in delivery order, at most `limit`. Some may not be READY any more."""
        found: list[Candidate] = []
        for line in self._entry.lines:
            while len(found) < limit and (some := self._next_of(line, limit - len(found))):
                found += some
        return found

    def _next_of(self, line: Line, limit: int) -> Sequence[Candidate]:
        heap = self._returned.get(line.rank)
        if heap:
            again = [heappop(heap) for _ in range(min(limit, len(heap)))]
            self._waiting.difference_update(each.message for each in again)
            return again
        table, passed = self._tables.references, self._passed.get(line.rank, -1)
        rows = line.after(passed, limit)
        some = [Candidate(line.rank, place, table.id[table.message[row]]) for place, row in rows]
        if line.paged:
            some = [*islice(merge(some, self._in_index(line, passed)), limit)]
        if some:
            self._passed[line.rank] = some[-1].place
        return some

    def _in_index(self, line: Line, passed: int) -> Iterable[Candidate]:
        index = self._tables.index
        assert index is not None
        for paged in merge(*index.scan(self._entry.record_id, line.rank, passed + 1), key=lambda each: each[1:3]):
            if paged.rank != line.rank:
                return
            if not (paged.due or paged.passed):
                yield Candidate(paged.rank, paged.place, paged.message)
