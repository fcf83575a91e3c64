"""How a node holds back after one of its activations failed, or after it handed over: how long it rests, and when it
may ask for the journal again.

A node that asks for the journal and then cannot become active causes an outage, so each failure doubles the wait.
"""

from __future__ import annotations

import math
from dataclasses import replace

from journal.activate.copy_thread import Fitness
from journal.process.clocks import Clock

_REST_DOUBLINGS_MAX = 5
_ASK_DOUBLINGS_MAX = 12


class Resting:
    """The rest of one node. Only the node's thread changes it; any thread may read it."""

    def __init__(self, *, rest_s: float, ask_s: float, clock: Clock) -> None:
        """After the first failure the node rests for `rest_s`, and does not ask for the journal for twice `ask_s`."""
        self._rest_s = rest_s
        self._ask_s = ask_s
        self._clock = clock
        self._failures = 0
        self._rests_until = -math.inf
        self._asks_from = -math.inf

    def failed(self) -> float:
        """Note that an activation failed. Returns the seconds for which the node rests now."""
        now, pause_s = self._clock(), self._rest_s * 2.0 ** min(self._failures, _REST_DOUBLINGS_MAX)
        self._failures += 1
        self._rests_until = now + pause_s
        self._asks_from = max(self._asks_from, now + self._ask_s * 2.0 ** min(self._failures, _ASK_DOUBLINGS_MAX))
        return pause_s

    def activated(self) -> None:
        self._failures = 0
        self._asks_from = -math.inf

    def handed_over(self) -> None:
        """Note that somebody wanted another node to be active. This holds until this node has been active again."""
        self._asks_from = math.inf

    @property
    def rested(self) -> bool:
        return self._clock() >= self._rests_until

    @property
    def may_ask(self) -> bool:
        return self._clock() >= self._asks_from

    def told_of(self, fitness: Fitness) -> Fitness:
        """The fitness that the node reports. A node that rests is not fit, because a node that names it as successor
        would wait for it."""
        if self.rested or not fitness.fit:
            return fitness
        return replace(fitness, fit=False, why_not="its activation has just failed")
