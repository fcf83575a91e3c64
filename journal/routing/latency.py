"""The latency of a source or of a shard's routes: the last one, and the highest of the last minutes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

PEAK_MS = 5 * 60 * 1000
"""The length of a window in which the highest latency is taken. The highest of the present window and the one before
are shown."""
MEASURED_MS_MAX = 24 * 60 * 60 * 1000
"""A latency above this is not counted: a timestamp so old is the producer's own time or a wrong clock's, not the time
when the record was written."""


@dataclass(slots=True)
class Latency:
    """Latencies as they are measured, and the highest of them."""

    last_ms: float = 0.0
    """The last latency; 0 before the first."""
    _peaks: dict[int, float] = field(default_factory=dict)
    """The highest latency of each of the last two windows, by the window's number."""

    def measure(self, oldest_ms: float, now_ms: float) -> None:
        """Note that records are committed now, the oldest of which has this timestamp."""
        if now_ms - oldest_ms > MEASURED_MS_MAX:
            return
        self.last_ms = round(max(0.0, now_ms - oldest_ms), 3)
        window = int(now_ms // PEAK_MS)
        peaks = {number: peak for number, peak in self._peaks.items() if number >= window - 1}
        self._peaks = peaks | {window: max(self.last_ms, peaks.get(window, 0.0))}

    def highest_ms(self, now_ms: float) -> float:
        """The highest latency of the present window and the one before."""
        window = int(now_ms // PEAK_MS)
        return max(self._peaks.get(number, 0.0) for number in (window - 1, window))
