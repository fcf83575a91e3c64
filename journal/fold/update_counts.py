"""Numbers of updates by record, in few bytes: a bitmap for each binary digit. Pure."""

from __future__ import annotations

from pyroaring import BitMap64


class UpdateCounts:
    """How many updates each record has; none unless it was told."""

    __slots__ = ("_digits",)

    def __init__(self) -> None:
        self._digits: list[BitMap64] = []

    def of(self, record_id: int) -> int:
        return sum(1 << place for place, digit in enumerate(self._digits) if record_id in digit)

    def load(self, record_id: int, updates: int) -> None:
        """The number of updates of a record of which none was known."""
        self._extend(updates)
        for place, digit in enumerate(self._digits):
            if updates >> place & 1:
                digit.add(record_id)

    def put(self, record_id: int, updates: int) -> int:
        """The number of updates that a record has now; what it was before."""
        self._extend(updates)
        before = 0
        for place, digit in enumerate(self._digits):
            if record_id in digit:
                before += 1 << place
                if not updates >> place & 1:
                    digit.discard(record_id)
            elif updates >> place & 1:
                digit.add(record_id)
        return before

    def drop(self, record_ids: BitMap64) -> None:
        """These have none."""
        for digit in self._digits:
            digit.difference_update(record_ids)

    def _extend(self, updates: int) -> None:
        while updates >> len(self._digits):
            self._digits.append(BitMap64())
