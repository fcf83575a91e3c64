"""Duplicate detection: per address, the ids that its last messages carried, and those that transactions reserve.

A window of n has n slots, each an id's place in the journal (a replaceable update of the address, subject = slot), so
that it never outgrows n updates. A new id takes the slot of the id that has been in the window longest. One stored in a
transaction is reserved from its acceptance on, with a slot of its own; it enters the window by the commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from journal.errors import DuplicateMessageError, FullError


class Reservation(NamedTuple):
    """An id that a transaction will enter into the window of an address, or not."""

    address: int
    slot: int
    duplicate_id: bytes


class DuplicateWindow:
    """The ids of one address. Not thread-safe: the store's lock guards it."""

    __slots__ = ("_address", "_ids", "_locked", "_reserved", "_reusable", "_size", "_slots", "_unused")

    def __init__(self, address: int, size: int) -> None:
        """`address` is the record's id; `size` is at least 1."""
        self._address = address
        self._size = size
        self._unused = 0
        """The first slot that never had an id."""
        self._reusable: deque[int] = deque()
        """Slots that had one, in the order in which they are taken again."""
        self._slots: dict[int, bytes] = {}
        self._ids: dict[bytes, int] = {}
        """In the window: the slot, the last one if it has been entered again."""
        self._reserved: dict[bytes, int] = {}
        self._locked: dict[int, int] = {}
        """Slots of reservations, in the order in which they were reserved: the transaction."""

    def __contains__(self, duplicate_id: bytes) -> bool:
        return duplicate_id in self._ids or duplicate_id in self._reserved

    def ids(self) -> set[bytes]:
        """Those in the window, without the reserved ones."""
        return set(self._ids)

    def check(self, duplicate_id: bytes) -> None:
        """Raises DuplicateMessageError for an id in the window or reserved."""
        if duplicate_id in self._ids:
            raise DuplicateMessageError(f"duplicate id {duplicate_id!r} was seen")
        if duplicate_id in self._reserved:
            raise DuplicateMessageError(
                f"duplicate id {duplicate_id!r} is reserved by transaction {self._reserved[duplicate_id]}"
            )

    def next_slot(self, tx: int = 0) -> int:
        """The slot for the next id. Raises FullError if other transactions reserve them all."""
        if self._unused < self._size:
            return self._unused
        if self._reusable:
            return self._reusable[0]
        for slot, holder in self._locked.items():
            if holder == tx:
                return slot  # more ids in one transaction than the window remembers: the last ones count
        raise FullError(f"transactions reserve the whole duplicate window of address {self._address}: settle some")

    def _take(self, slot: int) -> None:
        if slot == self._unused:
            self._unused += 1
        elif self._reusable and self._reusable[0] == slot:
            self._reusable.popleft()

    def enter(self, duplicate_id: bytes, slot: int) -> None:
        """The id is in the window from now on, in `next_slot()`; also one that was entered before."""
        self._take(slot)
        self._place(duplicate_id, slot)
        self._reusable.append(slot)

    def _place(self, duplicate_id: bytes, slot: int) -> None:
        before = self._slots.get(slot)
        if before is not None and self._ids.get(before) == slot:
            del self._ids[before]
        self._slots[slot] = duplicate_id
        self._ids[duplicate_id] = slot

    def reserve(self, duplicate_id: bytes, slot: int, tx: int) -> Reservation:
        """The id is `tx`'s until `settle`, in `next_slot(tx)`; also one that was entered or reserved before."""
        self._take(slot)
        self._reserved[duplicate_id] = tx
        self._locked.pop(slot, None)
        self._locked[slot] = tx
        return Reservation(self._address, slot, duplicate_id)

    def settle(self, reservations: Sequence[Reservation], *, entered: bool) -> None:
        """A transaction's ids enter the window, or are free again."""
        slots: dict[int, None] = {}
        for _, slot, duplicate_id in reservations:
            if self._reserved.get(duplicate_id) == self._locked[slot]:
                del self._reserved[duplicate_id]
            slots.pop(slot, None)
            slots[slot] = None
            if entered:
                self._place(duplicate_id, slot)
        for slot in slots:
            del self._locked[slot]
            if entered:
                self._reusable.append(slot)
            else:
                self._reusable.appendleft(slot)

    def load(self, entered: Iterable[tuple[int, bytes]], reserved: Iterable[tuple[int, bytes, int]]) -> None:
        """Slots and ids in the order in which they entered; slots, ids and transactions of reservations."""
        order: list[int] = []
        for slot, duplicate_id in entered:
            self._place(duplicate_id, slot)
            order.append(slot)
        for slot, duplicate_id, tx in reserved:
            self._reserved[duplicate_id] = tx
            self._locked[slot] = tx
        used = {*order, *self._locked}
        self._unused = max(used, default=-1) + 1
        empty = [slot for slot in range(self._unused) if slot not in used]
        self._reusable.extend([*empty, *(slot for slot in order if slot not in self._locked)])
