"""The two clocks of this machine: the monotonic one, which is never set, and the wall clock, which may step.

`Moment` is a point in time by both clocks; its age includes time in which the machine was suspended. `AgreedTime` is
the wall clock's time as far as it can be believed, for acts that cannot be undone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Moment(NamedTuple):
    """A point in time, in seconds by the monotonic clock and by the wall clock."""

    monotonic_s: float
    wall_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), time.time())

    @property
    def age_s(self) -> float:
        return self.age_at(Moment.now())

    def age_at(self, now: Moment) -> float:
        """The age by the clock that shows more: the monotonic clock stands still while the machine is suspended, and
        the wall clock may be set back."""
        return max(now.monotonic_s - self.monotonic_s, now.wall_s - self.wall_s)


def monotonic_ms() -> float:
    """Milliseconds by the monotonic clock, for durations."""
    return time.monotonic() * 1000


AGREEMENT_MS = 60_000
"""Time for which both clocks must have run alike. A machine that starts takes less to set its wall clock."""

_DRIFT_MS = 1000.0
"""Largest change of the difference between both clocks that is not a step: a wall clock may drift or be slewed."""


class AgreedTime:
    """The wall clock's time, less any step that is younger than `agreement_ms`.

    It notices a step only when it is called, so call it often. If the wall clock is set back, it goes back at once.
    """

    def __init__(self, wall_ms: Callable[[], float], elapsed_ms: Callable[[], float], agreement_ms: float) -> None:
        """`wall_ms` gives milliseconds since 1970, `elapsed_ms` those of the monotonic clock."""
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._agreement_ms = agreement_ms
        self._since_ms = elapsed_ms()
        self._difference = wall_ms() - self._since_ms
        """Wall time minus monotonic time, unchanged since `_since_ms`."""
        self._agreed_difference = -math.inf
        """The last difference that stayed the same for `agreement_ms`."""

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
"""The moment of something that has never happened."""


Clock = Callable[[], float]
"""A monotonic clock in seconds. Code takes it as an argument, so that a simulation can control time."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds, and the clocks that they are measured by."""

    clock: Clock
    pause: Callable[[float], None]
    request_s: float
    recovery_s: float
    fence_check_s: float
    wall_s: Clock = time.time

    def now(self) -> Moment:
        return Moment(self.clock(), self.wall_s())

    def age_s(self, moment: Moment) -> float:
        """Seconds since `moment`, including time in which the machine was suspended."""
        return moment.age_at(self.now())


def wall_ms() -> float:
    """Milliseconds since 1970 by the wall clock."""
    return time.time() * 1000
