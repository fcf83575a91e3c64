"""Whoever waits for long says for what, and what ends the wait: by a warning in the log, which every command shows."""

from __future__ import annotations

import logging
from collections.abc import Callable

from journal.process.clocks import Clock

log = logging.getLogger("journal.waits")

SAY_AFTER_S = 3.0
"""A wait that lasts longer than this is said."""


class LongWait:
    """One wait. It is said once it has lasted for `SAY_AFTER_S`, and again each time it has lasted twice as long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began = clock()
        self._say_after_s = SAY_AFTER_S

    @property
    def left_s(self) -> float:
        """Seconds until the wait is to be said; zero or less if it is to be said now."""
        return self.began + self._say_after_s - self._clock()

    def look(self, waits_for: str, ends: str) -> None:
        """Say the wait if it is time: what this process `waits_for`, and what `ends` the wait."""
        if self.left_s <= 0:
            self.say(waits_for, ends)

    def say(self, waits_for: str, ends: str) -> None:
        """Say the wait now."""
        waited_s = self._clock() - self.began
        self._say_after_s = 2 * max(waited_s, SAY_AFTER_S)
        say_wait(waits_for, waited_s, ends)


def say_wait(waits_for: str, waited_s: float, ends: str) -> None:
    log.warning("waiting for %s, %.0f s so far: %s", waits_for, waited_s, ends)


def waited(wait: Callable[[float | None], bool], timeout_s: float | None, waits_for: str, ends: str) -> bool:
    """Call `wait`, which blocks for so many seconds at most (None: for ever) and returns whether the wait is over. A
    long wait is said once. Returns False if the wait is not over after `timeout_s`."""
    if timeout_s is not None and timeout_s <= SAY_AFTER_S:
        return wait(timeout_s)
    if wait(SAY_AFTER_S):
        return True
    say_wait(waits_for, SAY_AFTER_S, ends)
    return wait(None if timeout_s is None else timeout_s - SAY_AFTER_S)
