"""A duplicate window as plain lists: which ids an address remembers, here and in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from journal.errors import DuplicateMessageError, FullError, JournalError


class Entry(NamedTuple):
    slot: int
    duplicate_id: bytes


@dataclass
class Reserved:
    slot: int
    duplicate_id: bytes
    tx: int
    durable: bool


class PlainWindow:
    """Slots are taken in order while there are new ones; then the one goes whose id entered first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        """How many slots ever had an id or a reservation."""
        self._entered: list[Entry] = []
        """The last id of each slot, in the order of entering."""
        self._stored: list[Entry] = []
        """The same of the journal, which knows nothing of what is not durable."""
        self._reserved: list[Reserved] = []

    def refusal(self, duplicate_id: bytes, tx: int) -> type[JournalError] | None:
        seen = [each.duplicate_id for each in (*self._entered, *self._reserved)]
        if duplicate_id in seen:
            return DuplicateMessageError
        return FullError if self._next_slot(tx) < 0 else None

    def _next_slot(self, tx: int) -> int:
        """-1 if transactions have reserved them all."""
        if self._taken < self._size:
            return self._taken
        reserved = {each.slot: each.tx for each in self._reserved}
        ages = {each.slot: age for age, each in enumerate(self._entered)}
        free = sorted(set(range(self._taken)) - reserved.keys(), key=lambda slot: ages.get(slot, -1))
        own = [slot for slot, reserving in reserved.items() if reserving == tx]
        return next(iter([*free, *own]), -1)

    def _take(self, tx: int) -> int:
        slot = self._next_slot(tx)
        self._taken = max(self._taken, slot + 1)
        return slot

    def enter(self, duplicate_id: bytes, *, durable: bool) -> None:
        self._place(Entry(self._take(0), duplicate_id), durable=durable)

    def _place(self, entry: Entry, *, durable: bool) -> None:
        for entries in (self._entered, self._stored) if durable else (self._entered,):
            entries[:] = [*(each for each in entries if each.slot != entry.slot), entry]

    def reserve(self, duplicate_id: bytes, tx: int, *, durable: bool) -> None:
        self._reserved.append(Reserved(self._take(tx), duplicate_id, tx, durable))

    def settle(self, tx: int, *, entered: bool) -> None:
        for each in [each for each in self._reserved if each.tx == tx]:
            self._reserved.remove(each)
            if entered:
                self._place(Entry(each.slot, each.duplicate_id), durable=each.durable)

    def activate(self) -> None:
        """After the rollback of what is not prepared."""
        self._reserved = [each for each in self._reserved if each.durable]
        self._entered = list(self._stored)
        self._taken = max([each.slot + 1 for each in (*self._entered, *self._reserved)], default=0)
