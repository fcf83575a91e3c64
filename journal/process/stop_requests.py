"""Signals that ask a serving process to stop: SIGTERM and Ctrl-C. A second request ends the process at once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from journal.process.clocks import Clock

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

ONE_REQUEST_S = 1.0
"""Signals within this time count as one request: a supervisor such as `timeout` may signal a process and then its whole
group."""


class StopRequests:
    """The stop requests of a process. The main thread uses it, because that thread handles signals."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None

    def hear(self, number: int) -> bool:
        """Whether a signal is the first request. A signal that comes more than a second later ends the process
        with a short message; nothing is lost by that."""
        now = self._clock()
        if self._first_at is None:
            self._first_at = now
            return True
        if now - self._first_at >= ONE_REQUEST_S:
            with suppress(OSError):  # the parent may have closed the standard error of this process
                os.write(2, b"interrupted\n")
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        return False
