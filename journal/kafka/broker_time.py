"""The brokers' clock, as far as what they have appended tells it: nobody can ask them for the time."""

from __future__ import annotations

from journal.process.clocks import Clock


class BrokerTime:
    """The newest timestamp that a broker gave a record, and what has passed since then here: never more than it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest_ms = 0
        self._seen_at = clock()

    def see(self, timestamp_ms: int) -> None:
        """A broker has given a record this timestamp, ms since 1970."""
        if timestamp_ms > self.now_ms():
            self._newest_ms, self._seen_at = timestamp_ms, self._clock()

    def now_ms(self) -> float:
        """Milliseconds since 1970; it is at least so late for the brokers."""
        return self._newest_ms + (self._clock() - self._seen_at) * 1000
