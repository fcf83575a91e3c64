"""Time by the clocks of this machine: one that is never set, and the wall's, which may step.

`Moment` is when something was; its age counts the time in which the machine was suspended. `AgreedTime` is the wall's
time as far as it can be believed, for what cannot be undone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Moment(NamedTuple):
    """Seconds by the clock that is never set, and by that of the wall."""

    monotonic_s: float
    wall_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), time.time())

    @property
    def age_s(self) -> float:
        return self.age_at(Moment.now())

    def age_at(self, now: Moment) -> float:
        """The larger of two answers: one clock stands still while the machine is suspended, the other may be set
        back."""
        return max(now.monotonic_s - self.monotonic_s, now.wall_s - self.wall_s)


def monotonic_ms() -> float:
    """Milliseconds by the clock that is never set: for durations."""
    return time.monotonic() * 1000


AGREEMENT_MS = 60_000
"""Time for which both clocks must have gone alike: longer than a machine that starts takes to set its wall clock."""

_DRIFT_MS = 1000.0
"""A wall clock that moves by less against the other one is drifting, or is being slewed; it has not stepped."""


class AgreedTime:
    """The wall's time, no later than it would be without a step that is younger than `agreement_ms`.

    It sees a step by being asked, so ask it often. Where the wall clock is set back, it goes back at once.
    """

    def __init__(self, wall_ms: Callable[[], float], elapsed_ms: Callable[[], float], agreement_ms: float) -> None:
        """`wall_ms` gives milliseconds since 1970, `elapsed_ms` those of a clock that is never set."""
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._agreement_ms = agreement_ms
        self._since_ms = elapsed_ms()
        self._difference = wall_ms() - self._since_ms
        """Wall less elapsed time, as it has been since `_since_ms`."""
        self._agreed_difference = -math.inf
        """The last difference that lasted long enough."""

    def __call__(self) -> float:
        """Milliseconds since 1970; minus infinity until the clocks have agreed for the first time."""
        wall_ms, elapsed_ms = self._wall_ms(), self._elapsed_ms()
        if abs(wall_ms - elapsed_ms - self._difference) > _DRIFT_MS:
            self._difference = wall_ms - elapsed_ms
            self._since_ms = elapsed_ms
        if elapsed_ms - self._since_ms >= self._agreement_ms:
            self._agreed_difference = self._difference
        return min(wall_ms, elapsed_ms + self._agreed_difference)


LONG_AGO = Moment(-math.inf, -math.inf)
"""Of what never was."""


Clock = Callable[[], float]
"""Seconds, monotonic. An argument everywhere, so that a simulation can own time."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds, and time itself."""

    clock: Clock
    pause: Callable[[float], None]
    request_s: float
    recovery_s: float
    fence_check_s: float
    wall_s: Clock = time.time

    def now(self) -> Moment:
        return Moment(self.clock(), self.wall_s())

    def age_s(self, moment: Moment) -> float:
        """Time in which the machine was suspended included, which `clock` leaves out."""
        return moment.age_at(self.now())


def wall_ms() -> float:
    """Milliseconds since 1970."""
    return time.time() * 1000
