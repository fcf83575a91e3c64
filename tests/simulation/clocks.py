"""The machines' clocks. One is never set, and stands still while the machine is suspended; the wall's may be wrong by
hours, and is set now and then. The brokers have another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random

from tests.simulation.scheduler import Scheduler

WRONG_BY_S = (0.0, 0.0, 0.0, 1.0, -1.0, 20.0, -20.0, 3600.0, -3600.0)


class Clocks:
    """By machine: every process of a name runs on the same one."""

    def __init__(self, scheduler: Scheduler, chance: Random, wrong_by_s: Sequence[float] = (0.0,)) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self._wrong_by_s = wrong_by_s
        self._ahead_s: defaultdict[str, float] = defaultdict(lambda: chance.choice(wrong_by_s))
        self._asleep_since: dict[str, float] = {}
        self._slept_s: defaultdict[str, float] = defaultdict(float)

    def elapsed(self, machine: str) -> Callable[[], float]:
        """Seconds by the clock that is never set."""
        now, asleep_since, slept_s = self._scheduler.now, self._asleep_since, self._slept_s

        def elapsed() -> float:
            return (asleep_since[machine] if machine in asleep_since else now()) - slept_s[machine]

        return elapsed

    def wall(self, machine: str) -> Callable[[], float]:
        """Seconds since 1970, as the machine has them."""
        return lambda: self._scheduler.now() + self._ahead_s[machine]

    def set(self, machine: str) -> None:
        """The wall clock is set, right or wrong."""
        self._ahead_s[machine] = self._chance.choice(self._wrong_by_s)

    def set_back(self, machine: str, seconds: float) -> None:
        """The wall clock shows a time again that it has shown."""
        self._ahead_s[machine] -= seconds

    def suspend(self, machine: str, seconds: float) -> None:
        """The machine sleeps for so long, or until it is woken; what runs on it is to be frozen meanwhile."""
        self._asleep_since.setdefault(machine, self._scheduler.now())
        self._scheduler.call_at(self._scheduler.now() + seconds, lambda: self.wake(machine))

    def wake(self, machine: str) -> None:
        since = self._asleep_since.pop(machine, None)
        if since is not None:
            self._slept_s[machine] += self._scheduler.now() - since
