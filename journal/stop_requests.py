"""What SIGTERM and Ctrl-C ask of a process that serves: to stop, and if they come again, to end at once."""

from __future__ import annotations

import signal
import time

from journal.kafka.ports import Clock

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

ONE_REQUEST_S = 1.0
"""Signals within it are one request: who stops a process may signal it and then its group, as `timeout` does."""


class StopRequests:
    """For the main thread, which is where signals are handled."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None

    def hear(self, number: int) -> None:
        """One that comes more than a second after the first ends the process: whatever it was doing is safe."""
        now = self._clock()
        if self._first_at is None:
            self._first_at = now
        elif now - self._first_at >= ONE_REQUEST_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
