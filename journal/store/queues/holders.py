"""The references that holders of a QueueState hold, and those that are held over: their holder has let go, or had them
before a load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from journal.errors import MessageMissingError, QueueMissingError
from journal.store.queues.counters import HolderInfo
from journal.store.queues.following import QueueFollowing
from journal.store.queues.references import HELD, LOCKED, STATE


class QueueHolders(QueueFollowing):
    """Held references by their holder. References that a transaction has locked are left out until it unlocks them."""

    def held_by(self, holder: str) -> list[tuple[int, int]]:
        """The (message, queue) pairs that a holder holds and no transaction has locked, in order of acquisition."""
        return self._held_of(self._tables.holds.rows(holder))

    def rows_of(self, holder: str) -> Sequence[int]:
        """The rows of all references that a holder holds. The caller gives them to `let_go`, all at once or in
        parts."""
        return self._tables.holds.rows(holder)

    def row_of(self, message_id: int, queue: str) -> int | None:
        """The row of a message in a queue; None if it is not there."""
        try:
            return self._present(message_id, self.queue(queue).record_id)[1]
        except (QueueMissingError, MessageMissingError):
            return None

    def let_go(self, holder: str, rows: Iterable[int], *, counts: bool) -> list[tuple[int, int]]:
        """The (message, queue) pairs of these rows that the holder still holds; the caller releases them. Locked
        references are held over."""
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
        """Hold over all held references after a load, until their holders come back for them."""
        self._tables.holds.hold_all_over()

    def hold_over(self, message_id: int, queue_id: int, *, counts: bool) -> None:
        """Hold over a reference. Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        self._tables.holds.hold_over(row, counts=counts)

    def held_over(self, holder: str, limit: int) -> list[tuple[int, int]]:
        """The first (message, queue) pairs that are held over for a holder, in order of acquisition."""
        return self._held_of(islice(filter(self._is_held, self._tables.holds.over(holder)), limit))

    def held_over_counts(self, message_id: int, queue_id: int) -> bool | None:
        """Whether the release of a reference that is held over counts as a delivery.

        None if it is not held over, or its queue is gone. Raises MessageMissingError.
        """
        if self._is_gone(queue_id):
            return None
        _, row = self._present(message_id, queue_id)
        return self._tables.holds.over_counts(row)

    def reattach(self, holder: str) -> Sequence[int]:
        """Called when a holder has come back for all its references: none of them is held over any more. Returns their
        rows; the caller gives them to `held_of`."""
        self._tables.holds.claim_all(holder)
        return self.rows_of(holder)

    def held_of(self, holder: str, rows: Iterable[int]) -> list[tuple[int, int]]:
        """The (message, queue) pairs of these rows that the holder still holds, in queues that are listed."""
        holder_of = self._tables.holds.holder
        own = self._held_of(row for row in rows if holder_of(row) == holder)
        return [held for held in own if self.has_queue(held[1])]

    def claim(self, message_id: int, queue_id: int, holder: str) -> None:
        """Called when a holder has come back for one reference: it is not held over any more. Does nothing if another
        holder holds it. Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        if self._tables.holds.holder(row) == holder:
            self._tables.holds.claim(row)

    def note_acted(self, holder: str, now_ms: int) -> None:
        """Note when a holder last did something, if it holds anything."""
        if self._tables.holds.has(holder):
            self._tables.holds.acted[holder] = now_ms

    def holding(self, queue_id: int) -> list[HolderInfo]:
        """The holders of messages of a queue. None of them counts as having come back for its messages."""
        holds, queue_of = self._tables.holds, self._references.queue
        found: list[HolderInfo] = []
        for holder in holds.holders():
            count = sum(queue_of[row] == queue_id and self._is_held(row) for row in holds.rows(holder))
            if count:
                found.append(HolderInfo(holder, count, holds.acted.get(holder, 0)))
        return found

    def holders(self) -> list[str]:
        """The names of all holders, including those whose references are all locked by transactions."""
        return self._tables.holds.holders()
