"""The progress of a long step, as a function that is told of it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""A function that is called with a step's name, the work done, and all of its work (0 if that is not known)."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignores progress."""
