"""Python's garbage collector, set for processes that make many objects and hardly a cycle."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 100)


def collect_seldom() -> None:
    """A checkpoint makes many thousands of small objects, none of them in a cycle. With Python's own thresholds a
    worker spends half of its time looking for cycles among them."""
    gc.set_threshold(*_THRESHOLDS)
