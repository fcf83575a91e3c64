"""The progress of a long step, told to a function."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""A function that is called with a step's name, the amount of work done, and the whole amount (0 if that is not
known)."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore progress."""
