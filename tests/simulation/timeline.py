"""Simulated time: a clock that only moves when something waits, and the actions that fall due as it does.

`Timeline` runs one node. A scheduler that interleaves several overrides `switch` and `wait` and keeps the rest.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

SWITCH_S = 0.001


def never() -> bool:
    """What nobody need ask again: only time ends a wait for it."""
    return False


class Timeline:
    """Time for a single thread of control. Deterministic: actions due at one moment run in the order they were set."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Seconds: a `ports.Clock`."""
        return self._now

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (max(when, self._now), next(self._order), action))

    def switch(self) -> None:
        """Called before each effect: the place where another node may run. A millisecond passes."""
        self.pass_to(self._now + SWITCH_S)

    def wait(self, seconds: float, until: Callable[[], bool]) -> bool:
        """Lets time pass until `until` holds, at most `seconds`; says whether it holds."""
        deadline = self._now + seconds
        while not until():
            if self._now >= deadline:
                return False
            self.pass_to(min(deadline, self._actions[0][0]) if self._actions else deadline)
        return True

    def pass_to(self, when: float) -> None:
        """Moves the clock, running on the way what falls due."""
        while self._actions and self._actions[0][0] <= when:
            due, _, action = heapq.heappop(self._actions)
            self._now = max(self._now, due)
            action()
        self._now = max(self._now, when)
