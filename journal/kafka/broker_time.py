"""The brokers' clock, as far as the timestamps of their records tell it. Brokers cannot be asked for the time."""

from __future__ import annotations

from journal.process.clocks import Clock


class BrokerTime:
    """A lower bound of the brokers' time: the newest timestamp that a broker gave a record, plus the time that has
    passed here since then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest_ms = 0
        self._seen_at = clock()

    def see(self, timestamp_ms: int) -> None:
        """Note the timestamp that a broker gave a record, in ms since 1970."""
        if timestamp_ms > self.now_ms():
            self._newest_ms, self._seen_at = timestamp_ms, self._clock()

    def now_ms(self) -> float:
        """Milliseconds since 1970: the brokers' clock shows this or a later time."""
        return self._newest_ms + (self._clock() - self._seen_at) * 1000
