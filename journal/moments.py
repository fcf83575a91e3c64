"""Moment: when something was, by both clocks of this machine: how long a machine was suspended is a part of its age."""

from __future__ import annotations

import math
import time
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


LONG_AGO = Moment(-math.inf, -math.inf)
"""Of what never was."""
