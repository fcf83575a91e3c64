"""Progress of a long step, told to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with a step's name, what is done of it, and how much there is (0: not known)."""


def no_progress(step: str, done: int, total: int) -> None:
    """Shows nothing."""
