"""Duplicate detection: for each address, the ids of its last messages, and those that transactions reserve.

A window of n has n slots, each an id's place in the journal (a replaceable update of the address, subject = slot), so
that it never outgrows n updates. A new id takes the slot of the id that has been in the window longest. An id that is
stored in a transaction is reserved, with a slot of its own, from its acceptance on; it enters the window at the commit.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, cycle, islice
from typing import NamedTuple

from journal.errors import DuplicateMessageError, FullError


class Reservation(NamedTuple):
    """An id that a transaction has reserved in the window of an address. It enters the window at the commit."""

    address: int
    slot: int
    duplicate_id: bytes


class DuplicateWindow:
    """The ids of one address. Not thread-safe: the store's lock guards it."""

    __slots__ = ("_address", "_entered", "_ids", "_locked", "_ordinals", "_reserved", "_reusable", "_size", "_slots")

    def __init__(self, address: int, size: int) -> None:
        """`address` is the record's id; `size` is at least 1."""
        self._address = address
        self._size = size
        self._ordinals = count(1)
        self._entered = array("Q")
        """When the id of each used slot entered the window; 0 if the slot has no id."""
        self._reusable: deque[int] = deque()
        """Slots that no transaction reserves, in the order in which they are reused: the slot of the oldest id comes
        first."""
        self._slots: dict[int, bytes] = {}
        self._ids: dict[bytes, int] = {}
        """The slot of each id in the window. If an id has entered twice, it is the last one."""
        self._reserved: dict[bytes, int] = {}
        self._locked: dict[int, int] = {}
        """The transaction of each reserved slot, in the order of reservation."""

    def __contains__(self, duplicate_id: bytes) -> bool:
        return duplicate_id in self._ids or duplicate_id in self._reserved

    def ids(self) -> set[bytes]:
        """Ids in the window, without the reserved ones."""
        return set(self._ids)

    def check(self, duplicate_id: bytes) -> None:
        """Raises DuplicateMessageError for an id in the window or reserved."""
        if duplicate_id in self._ids:
            raise DuplicateMessageError(f"duplicate id {duplicate_id!r} was seen", duplicate_id)
        if tx := self._reserved.get(duplicate_id, 0):
            raise DuplicateMessageError(
                f"duplicate id {duplicate_id!r} is reserved by transaction {tx}", duplicate_id, tx
            )

    def check_all(self, duplicate_ids: Sequence[bytes]) -> None:
        """`check` for ids that come together. Raises DuplicateMessageError also if two of them are equal."""
        seen: set[bytes] = set()
        for duplicate_id in duplicate_ids:
            self.check(duplicate_id)
            if duplicate_id in seen:
                raise DuplicateMessageError(f"duplicate id {duplicate_id!r} is in two messages", duplicate_id)
            seen.add(duplicate_id)

    def next_slot(self, tx: int = 0) -> int:
        """The slot for the next id. Raises FullError if other transactions reserve them all."""
        return self.next_slots(1, tx)[0]

    def next_slots(self, count: int, tx: int = 0) -> list[int]:
        """The slots for `count` ids that come one after the other. Raises FullError as `next_slot` does."""
        taken = len(self._entered)
        slots = [*range(taken, min(taken + count, self._size))]
        slots += islice(self._reusable, count - len(slots))
        # if there are more ids than slots that the transaction can have, the last ids count
        if len(slots) < count:
            again = [*(slot for slot, holder in self._locked.items() if holder == tx), *slots]
            if not again:
                raise FullError(
                    f"transactions reserve the whole duplicate window of address {self._address}: settle some"
                )
            slots += islice(cycle(again), count - len(slots))
        return slots

    def _take(self, slot: int) -> None:
        if slot == len(self._entered):
            self._entered.append(0)
        elif self._reusable and self._reusable[0] == slot:
            self._reusable.popleft()

    def enter(self, duplicate_id: bytes, slot: int) -> None:
        """Put an id into the window, in the slot from `next_slot()`; it may have entered before."""
        self._take(slot)
        self._place(duplicate_id, slot)
        self._reusable.append(slot)

    def _place(self, duplicate_id: bytes, slot: int) -> None:
        before = self._slots.get(slot)
        if before is not None and self._ids.get(before) == slot:
            del self._ids[before]
        self._slots[slot] = duplicate_id
        self._ids[duplicate_id] = slot
        self._entered[slot] = next(self._ordinals)

    def reserve(self, duplicate_id: bytes, slot: int, tx: int) -> Reservation:
        """Reserve an id for `tx` until `settle`, in the slot from `next_slot(tx)`; it may have been there before."""
        self._take(slot)
        self._reserved[duplicate_id] = tx
        self._locked.pop(slot, None)
        self._locked[slot] = tx
        return Reservation(self._address, slot, duplicate_id)

    def settle(self, reservations: Sequence[Reservation], *, entered: bool) -> None:
        """Note that a transaction has ended. The ids that it reserved enter the window, or are free again."""
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
            insort(self._reusable, slot, key=self._entered.__getitem__)

    def load(self, entered: Iterable[tuple[int, bytes]], reserved: Iterable[tuple[int, bytes, int]]) -> None:
        """Load (slot, id) in the order of entering, and reservations as (slot, id, transaction)."""
        found = list(entered)
        for slot, duplicate_id, tx in reserved:
            self._reserved[duplicate_id] = tx
            self._locked[slot] = tx
        taken = max([slot for slot, _ in found] + [*self._locked], default=-1) + 1
        self._entered.extend([0] * taken)
        for slot, duplicate_id in found:
            self._place(duplicate_id, slot)
        free = (slot for slot in range(taken) if slot not in self._locked)
        self._reusable.extend(sorted(free, key=self._entered.__getitem__))
