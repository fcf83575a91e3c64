"""Locks that open and prepared transactions hold, from the acceptance of an operation to the transaction's settlement.

Add and delete lock the id; an update locks (id, kind, subject); a delete needs all of a record's update locks.
"""

from __future__ import annotations

from journal.errors import LockedError


class Locks:
    """Who holds what. 0 as a transaction means an operation outside of transactions: it locks nothing."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._updates: dict[int, dict[tuple[int, int], int]] = {}
        self._held: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._ids) + sum(len(updates) for updates in self._updates.values())

    def check_record(self, record_id: int, tx: int) -> None:
        """Raises LockedError if an add or delete by `tx` meets a lock of another transaction."""
        holder = self._ids.get(record_id, tx)
        if holder != tx:
            raise LockedError(f"record {record_id} is locked by transaction {holder}")
        updates = self._updates.get(record_id)
        if updates:
            for (kind, subject), holder in updates.items():
                if holder != tx:
                    what = f"updates of kind {kind} and subject {subject}"
                    raise LockedError(f"{what} of record {record_id} are locked by transaction {holder}")

    def check_update(self, record_id: int, kind: int, subject: int, tx: int) -> None:
        """Raises LockedError if an update by `tx` meets a lock of another transaction."""
        holder = self._ids.get(record_id, tx)
        if holder != tx:
            raise LockedError(f"record {record_id} is locked by transaction {holder}")
        updates = self._updates.get(record_id)
        holder = updates.get((kind, subject), tx) if updates else tx
        if holder != tx:
            what = f"updates of kind {kind} and subject {subject}"
            raise LockedError(f"{what} of record {record_id} are locked by transaction {holder}")

    def take_record(self, record_id: int, tx: int) -> None:
        self._ids[record_id] = tx
        self._held.setdefault(tx, set()).add(record_id)

    def take_update(self, record_id: int, kind: int, subject: int, tx: int) -> None:
        self._updates.setdefault(record_id, {})[kind, subject] = tx
        self._held.setdefault(tx, set()).add(record_id)

    def release(self, tx: int) -> None:
        """Give back everything `tx` holds."""
        for record_id in self._held.pop(tx, ()):
            if self._ids.get(record_id) == tx:
                del self._ids[record_id]
            updates = self._updates.get(record_id)
            if updates is not None:
                kept = {what: holder for what, holder in updates.items() if holder != tx}
                if kept:
                    self._updates[record_id] = kept
                else:
                    del self._updates[record_id]
