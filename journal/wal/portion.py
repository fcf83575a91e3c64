"""How much one Kafka transaction takes: less after a failure that its size may explain, and more again after success.

What a slow cluster, a quota or a day's backlog lets through within the time-outs is not known beforehand, and the same
transaction would fail in the same way for ever.
"""

from __future__ import annotations

_SHRINKS = 4
"""A failure costs a time-out, so a few of them have to do."""
_GROWS = 8
"""By an eighth: what was too much is met again only after a dozen successes."""


class Portion:
    """Bytes that one transaction of a producer takes. What cannot be divided is taken whole, however much it is."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = bytes_max
        self._bytes_max = bytes_max

    def failed(self, size: int) -> None:
        """A transaction of so many bytes failed, and nothing else explains it."""
        self.bytes = max(1, min(self.bytes, size) // _SHRINKS)

    def succeeded(self, size: int) -> None:
        """One was committed. It proves something if it was about as large as it might be."""
        if size >= self.bytes // 2:
            proven = max(self.bytes, size)
            self.bytes = min(self._bytes_max, proven + proven // _GROWS)
