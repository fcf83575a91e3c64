"""Which records live, and how many updates they have: what a standby keeps of them for its activation. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64


class LiveRecords:
    """Ids in a bitmap; the number of updates by its binary digits, a bitmap each. A few bytes a record."""

    __slots__ = ("_digits", "ids")

    def __init__(self) -> None:
        self.ids = BitMap64()
        self._digits: list[BitMap64] = []

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def updates(self) -> int:
        """Of all records."""
        return sum(len(digit) << place for place, digit in enumerate(self._digits))

    def load(self, record_ids: Iterable[int]) -> None:
        """Records not known before, whose updates `load_updates` tells."""
        self.ids.update(record_ids)

    def load_updates(self, record_id: int, updates: int) -> None:
        """The number of updates of a record of which none was known."""
        self._extend(updates)
        for place, digit in enumerate(self._digits):
            if updates >> place & 1:
                digit.add(record_id)

    def put(self, record_id: int, updates: int) -> None:
        """A record as it is now."""
        self.ids.add(record_id)
        self._extend(updates)
        for place, digit in enumerate(self._digits):
            if updates >> place & 1:
                digit.add(record_id)
            else:
                digit.discard(record_id)

    def drop(self, record_id: int) -> None:
        """A record is gone, if it was there."""
        self.ids.discard(record_id)
        for digit in self._digits:
            digit.discard(record_id)

    def _extend(self, updates: int) -> None:
        while updates >> len(self._digits):
            self._digits.append(BitMap64())
