"""The size of the next batch. It shrinks after a batch that was too large or failed for no known reason, or that had a
letter that Kafka refused. Pure."""

from __future__ import annotations

_GROWTH = 8
"""The part by which a batch in the journal makes the next one larger. The growth is slow, because a batch that is too
large has to be made twice."""
_SHRINKS = 4
"""A batch that failed makes the next one a fourth of it: each failure costs a time-out, so a few of them have to be
enough."""


class Sizing:
    """The size of the next batch. Used by the sources' thread."""

    def __init__(self, records_max: int) -> None:
        self.records_max = records_max
        """The most records in the next batch."""
        self._most = records_max
        self._suspects = 0

    @property
    def letters_max(self) -> int:
        """The most dead letters in the next batch."""
        return 1 if self._suspects else self.records_max

    def halve(self, records: int) -> None:
        """Note that a batch with this number of records was more than the journal takes at once."""
        self.records_max = max(1, records // 2)

    def failed(self, count: int) -> None:
        """Note that a batch with this number of records or letters failed, and that only its size may explain it."""
        if count > 1:
            self.records_max = max(1, min(self.records_max, count) // _SHRINKS)

    def suspect(self, letters: int) -> None:
        """Note that one of this number of letters was refused. The next batches have single letters, to find which one
        it was. 0 means that it is known."""
        self._suspects = letters

    def landed(self, letters: int) -> None:
        """Note that a batch with this number of letters is in the journal."""
        self._suspects = max(0, self._suspects - letters)
        self.records_max = min(self._most, self.records_max + max(1, self.records_max // _GROWTH))
