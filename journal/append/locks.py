"""Locks that open and prepared transactions hold, from the acceptance of an operation to the transaction's settlement.

An add or delete locks the id. An update locks (id, kind, subject). A delete needs all of a record's update locks.
"""

from __future__ import annotations

from journal.errors import LockedError


class Locks:
    """The locks, each with the transaction that holds it. Operations outside of transactions have transaction 0: other
    locks refuse them, but they take none."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._updates: dict[int, dict[tuple[int, int], int]] = {}
        self.held: dict[int, set[int]] = {}
        """The records on which each transaction holds a lock, by transaction."""

    def __len__(self) -> int:
        return len(self._ids) + sum(len(updates) for updates in self._updates.values())

    def check_record(self, record_id: int, tx: int) -> None:
        """Raises LockedError if an add or delete by `tx` meets a lock of another transaction."""
        self._check_id(record_id, tx)
        for (kind, subject), holder in self._updates.get(record_id, {}).items():
            if holder != tx:
                raise _update_locked(record_id, kind, subject, holder)

    def check_update(self, record_id: int, kind: int, subject: int, tx: int) -> None:
        """Raises LockedError if an update by `tx` meets a lock of another transaction."""
        self._check_id(record_id, tx)
        holder = self._updates.get(record_id, {}).get((kind, subject), tx)
        if holder != tx:
            raise _update_locked(record_id, kind, subject, holder)

    def _check_id(self, record_id: int, tx: int) -> None:
        holder = self._ids.get(record_id, tx)
        if holder != tx:
            raise LockedError(f"record {record_id} is locked by transaction {holder}: commit it or roll it back first")

    def take_record(self, record_id: int, tx: int) -> None:
        self._ids[record_id] = tx
        self.held.setdefault(tx, set()).add(record_id)

    def take_update(self, record_id: int, kind: int, subject: int, tx: int) -> None:
        self._updates.setdefault(record_id, {})[kind, subject] = tx
        self.held.setdefault(tx, set()).add(record_id)

    def release(self, tx: int) -> None:
        """Release all locks of `tx`."""
        for record_id in self.held.pop(tx, ()):
            if self._ids.get(record_id) == tx:
                del self._ids[record_id]
            updates = self._updates.get(record_id)
            if updates is not None:
                kept = {what: holder for what, holder in updates.items() if holder != tx}
                if kept:
                    self._updates[record_id] = kept
                else:
                    del self._updates[record_id]


def _update_locked(record_id: int, kind: int, subject: int, holder: int) -> LockedError:
    return LockedError(
        f"updates of kind {kind} and subject {subject} of record {record_id} are locked by transaction {holder}: "
        "commit it or roll it back first"
    )
