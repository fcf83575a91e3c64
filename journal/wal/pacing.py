"""Pacing: how long a transaction waits after the end of the last one.

While the markers of a transaction are being written, the broker answers the next one's first request with
CONCURRENT_TRANSACTIONS, and librdkafka asks again after 20 ms. The markers take a fraction of a millisecond on an idle
broker, and several milliseconds on a busy or replicated one. No answer says how long, but the 20 ms can be measured. So
the pause grows while transactions meet them, and shrinks again while none does.
"""

from __future__ import annotations

_WAITED_S = 0.02
"""How long librdkafka waits before it asks again. It cannot be configured."""
_LONGER_S = 0.001
_SHORTER_S = 0.00002
"""How much a transaction without a wait shortens the pause: a fiftieth of `_LONGER_S`, because one wait of 20 ms in
fifty transactions costs as much as a pause of 0.4 ms before each of the fifty."""


class Pace:
    """The pause before each transaction of one producer, between two bounds in seconds."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self.pause_s = least_s
        self._least_s = least_s
        self._most_s = max(least_s, most_s)
        self.next_at = float("-inf")
        """When the next transaction may begin."""

    def sent(self, took_s: float) -> None:
        """Note that a transaction's records were acknowledged `took_s` after it began."""
        if took_s >= _WAITED_S:
            self.pause_s = min(self._most_s, self.pause_s + _LONGER_S)
        else:
            self.pause_s = max(self._least_s, self.pause_s - _SHORTER_S)

    def answered(self, now: float) -> None:
        """Note that a transaction has ended, so that its markers are being written."""
        self.next_at = now + self.pause_s
