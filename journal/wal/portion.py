"""How much one Kafka transaction takes: less after a failure that its size may explain, and more again after success.

Nobody knows beforehand how much a slow cluster, or one with quotas, lets through within the time-outs. A transaction
that is too large for that would fail in the same way for ever.
"""

from __future__ import annotations

_SHRINKS = 4
"""A portion shrinks to a fourth: each failure costs a time-out, so a few of them have to be enough."""
_GROWS = 8
"""A portion grows by an eighth, so that it is too large again only after a dozen successes."""


class Portion:
    """The bytes that one transaction of a producer takes. A single group is never divided, however large it is."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = bytes_max
        self._bytes_max = bytes_max

    def failed(self, size: int) -> None:
        """Note that a transaction of `size` bytes failed, and that nothing else explains it."""
        self.bytes = max(1, min(self.bytes, size) // _SHRINKS)

    def succeeded(self, size: int) -> None:
        """Note that a transaction was committed. It proves something if it was about as large as allowed."""
        if size >= self.bytes // 2:
            proven = max(self.bytes, size)
            self.bytes = min(self._bytes_max, proven + proven // _GROWS)
