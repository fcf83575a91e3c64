"""How tests wait: a condition is looked at again and again until it holds, and a deadline says what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 60.0
_LOOK_S = 0.02


def wait_until(
    holds: Callable[[], object],
    saying: Callable[[], object] = lambda: "",
    deadline_s: float = DEADLINE_S,
    *,
    look_s: float = _LOOK_S,
) -> None:
    until = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < until, saying()
        time.sleep(look_s)
