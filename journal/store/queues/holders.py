"""What holders of a QueueState hold, and what is held over for those that have let go or were there before a load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from journal.store.queues.following import QueueFollowing
from journal.store.queues.references import HELD, LOCKED, STATE


class QueueHolders(QueueFollowing):
    """Held references by their holder. A reference that a transaction has locked is told when that leaves it."""

    def held_by(self, holder: str) -> list[tuple[int, int]]:
        """(message, queue) that a holder holds and no transaction has locked, in order of acquisition."""
        return self._held_of(self._tables.holds.rows(holder))

    def rows_of(self, holder: str) -> Sequence[int]:
        """Rows of everything that a holder holds, for `let_go`. Quick: the cost for each row is small."""
        return self._tables.holds.rows(holder)

    def let_go(self, holder: str, rows: Iterable[int], *, counts: bool) -> list[tuple[int, int]]:
        """(message, queue) of these rows that it still holds, to be released. Locked references are held over."""
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
        """After a load everything held, locked or not, is held over until its holder comes back for it."""
        self._tables.holds.hold_all_over()

    def hold_over(self, message_id: int, queue_id: int, *, counts: bool) -> None:
        """Hold over a reference that is held. Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        self._tables.holds.hold_over(row, counts=counts)

    def held_over(self, holder: str, limit: int) -> list[tuple[int, int]]:
        """The first (message, queue) that are held over for a holder, as in `held_by`."""
        return self._held_of(islice(filter(self._is_held, self._tables.holds.over(holder)), limit))

    def held_over_counts(self, message_id: int, queue_id: int) -> bool | None:
        """Whether giving back a reference that is held over counts as a delivery.

        None: it is not held over; nothing is in a queue that is gone. Raises MessageMissingError.
        """
        if self._is_gone(queue_id):
            return None
        _, row = self._present(message_id, queue_id)
        return self._tables.holds.over_counts(row)

    def reattach(self, holder: str) -> Sequence[int]:
        """A holder is back for everything that it holds. Returns the rows, for `held_of`."""
        self._tables.holds.claim_all(holder)
        return self.rows_of(holder)

    def held_of(self, holder: str, rows: Iterable[int]) -> list[tuple[int, int]]:
        """(message, queue) of these rows that a holder still holds, in queues that are listed."""
        holder_of = self._tables.holds.holder
        own = self._held_of(row for row in rows if holder_of(row) == holder)
        return [held for held in own if self.has_queue(held[1])]

    def claim(self, message_id: int, queue_id: int, holder: str) -> None:
        """A holder is back for a reference, if it holds it. Raises QueueMissingError, MessageMissingError."""
        _, row = self._present(message_id, queue_id)
        if self._tables.holds.holder(row) == holder:
            self._tables.holds.claim(row)

    def holders(self) -> list[str]:
        """Names of those who hold something, also if a transaction has locked it."""
        return self._tables.holds.holders()
