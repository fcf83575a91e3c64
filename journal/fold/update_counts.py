"""Numbers of updates by record, in little memory: one bitmap for each binary digit. Pure."""

from __future__ import annotations

from pyroaring import BitMap64


class UpdateCounts:
    """How many updates each record has. A record that was never put here has none."""

    __slots__ = ("_digits",)

    def __init__(self) -> None:
        self._digits: list[BitMap64] = []

    def of(self, record_id: int) -> int:
        return sum(1 << place for place, digit in enumerate(self._digits) if record_id in digit)

    def load(self, record_id: int, updates: int) -> None:
        """Note the number of updates of a record that has none so far."""
        self._extend(updates)
        for place, digit in enumerate(self._digits):
            if updates >> place & 1:
                digit.add(record_id)

    def put(self, record_id: int, updates: int) -> int:
        """Note the number of updates that a record has now; returns the number that it had."""
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
        """Note that these records have no updates."""
        for digit in self._digits:
            digit.difference_update(record_ids)

    def _extend(self, updates: int) -> None:
        while updates >> len(self._digits):
            self._digits.append(BitMap64())
