"""Settings of Python's garbage collector for processes that make many objects and hardly any reference cycle."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 100)


def collect_seldom() -> None:
    """Make the garbage collector run seldom. A checkpoint makes many thousands of small objects without cycles, and
    with Python's own thresholds a worker would spend half of its time looking for cycles among them."""
    gc.set_threshold(*_THRESHOLDS)
