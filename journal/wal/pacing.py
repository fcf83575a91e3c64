"""Pacing: how long a transaction keeps away from the end of the last one.

While the markers of a transaction are being written, the broker answers the next one's first request with
CONCURRENT_TRANSACTIONS, and librdkafka asks again after 20 ms. How long markers take is the brokers' affair (a fraction
of a millisecond on an idle one, several on busy or replicated ones) and nothing tells it; but the 20 ms are seen. So
the pause grows while transactions meet them, and shrinks again while none does.
"""

from __future__ import annotations

_WAITED_S = 0.02
"""What librdkafka waits, fixed."""
_LONGER_S = 0.001
_SHORTER_S = 0.00002
"""A fiftieth: what one meeting in fifty costs, 20 ms, is worth a pause of 0.4 ms for each of them."""


class Pace:
    """The pause before each transaction of one producer, between two bounds (seconds)."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self.pause_s = least_s
        self._least_s = least_s
        self._most_s = max(least_s, most_s)
        self._answered_at: float | None = None

    def left_s(self, now: float) -> float:
        """How long the next transaction is still to keep away; 0 or less: it may begin."""
        return 0.0 if self._answered_at is None else self._answered_at + self.pause_s - now

    def sent(self, took_s: float) -> None:
        """The records of a transaction were acknowledged, so long after it began."""
        if took_s >= _WAITED_S:
            self.pause_s = min(self._most_s, self.pause_s + _LONGER_S)
        else:
            self.pause_s = max(self._least_s, self.pause_s - _SHORTER_S)

    def answered(self, now: float) -> None:
        """A transaction has ended: its markers are being written."""
        self._answered_at = now
