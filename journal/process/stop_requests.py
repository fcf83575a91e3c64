"""What SIGTERM and Ctrl-C ask of a process that serves: to stop, and if they come again, to end at once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from journal.process.clocks import Clock

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

ONE_REQUEST_S = 1.0
"""Signals within it are one request: who stops a process may signal it and then its group, as `timeout` does."""


class StopRequests:
    """For the main thread, which is where signals are handled."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None

    def hear(self, number: int) -> bool:
        """Whether it is the first. One that comes more than a second later ends the process, with a word: whatever it
        was doing is safe."""
        now = self._clock()
        if self._first_at is None:
            self._first_at = now
            return True
        if now - self._first_at >= ONE_REQUEST_S:
            with suppress(OSError):  # whoever started it may have closed its standard error
                os.write(2, b"interrupted\n")
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        return False
