"""How a node holds back after an activation of its own that failed, or after it handed over: how long it rests, and
from when on it may ask for the journal back.

Whoever asks for the journal and then cannot be active costs an outage each time, so each failure doubles that wait.
"""

from __future__ import annotations

import math
from dataclasses import replace

from journal.activate.copy_thread import Fitness
from journal.process.clocks import Clock

_REST_DOUBLINGS_MAX = 5
_ASK_DOUBLINGS_MAX = 12


class Resting:
    """Of one node. Changed by its thread alone; what it says may be asked by any."""

    def __init__(self, *, rest_s: float, ask_s: float, clock: Clock) -> None:
        """After the first failure it rests for `rest_s`, and asks for nothing for twice `ask_s`."""
        self._rest_s = rest_s
        self._ask_s = ask_s
        self._clock = clock
        self._failures = 0
        self._rests_until = -math.inf
        self._asks_from = -math.inf

    def failed(self) -> float:
        """An activation failed; for how many seconds the node rests now."""
        now, pause_s = self._clock(), self._rest_s * 2.0 ** min(self._failures, _REST_DOUBLINGS_MAX)
        self._failures += 1
        self._rests_until = now + pause_s
        self._asks_from = max(self._asks_from, now + self._ask_s * 2.0 ** min(self._failures, _ASK_DOUBLINGS_MAX))
        return pause_s

    def activated(self) -> None:
        self._failures = 0
        self._asks_from = -math.inf

    def handed_over(self) -> None:
        """Somebody wanted another node to be active: that is so until this one has been active again."""
        self._asks_from = math.inf

    @property
    def rested(self) -> bool:
        return self._clock() >= self._rests_until

    @property
    def may_ask(self) -> bool:
        return self._clock() >= self._asks_from

    def told_of(self, fitness: Fitness) -> Fitness:
        """How fit a node with such a copy is: while it rests, whoever named it would wait for it."""
        if self.rested or not fitness.fit:
            return fitness
        return replace(fitness, fit=False, why_not="its activation has just failed")
