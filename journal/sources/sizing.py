"""The size of the next batch: less after one that was too large, or of which Kafka refused a letter. Pure."""

from __future__ import annotations

_GROWTH = 8
"""A batch that landed lets the next one be larger by this part of it: one that is too much is made twice."""


class Sizing:
    """The size of the next batch. Used by the sources' thread."""

    def __init__(self, records_max: int) -> None:
        self.records_max = records_max
        """Most records of the next batch."""
        self._most = records_max
        self._suspects = 0

    @property
    def letters_max(self) -> int:
        """Most dead letters of the next batch."""
        return 1 if self._suspects else self._most

    def halve(self, records: int) -> None:
        """Note that a batch of so many records was more than the journal takes at once."""
        self.records_max = max(1, records // 2)

    def suspect(self, letters: int) -> None:
        """Note that one of so many letters was refused: single ones show which. 0: it is known."""
        self._suspects = letters

    def landed(self, letters: int) -> None:
        """Note that a batch with so many letters is in the journal."""
        self._suspects = max(0, self._suspects - letters)
        self.records_max = min(self._most, self.records_max + max(1, self.records_max // _GROWTH))
