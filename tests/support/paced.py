"""Simulated time for the product's own threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.simulation.timeline import Timeline

PAUSE_S = 0.005


class PacedTimeline(Timeline):
    """For threads that run on: whoever waits leaves the processor to others."""

    def __init__(self) -> None:
        super().__init__()
        self._passing = threading.RLock()

    def pass_to(self, when: float) -> None:
        with self._passing:
            super().pass_to(when)

    def wait(self, seconds: float, until: Callable[[], bool]) -> bool:
        time.sleep(PAUSE_S)
        return super().wait(seconds, until)
