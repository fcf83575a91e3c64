"""Downloads into a place that the processes of a user share."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(lock: Path, doing: str, report: Callable[[str], object]) -> Iterator[None]:
    """Held by one process at a time, and given up by one that dies; the next is told what is being done, and waits."""
    with lock.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that is {doing}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
