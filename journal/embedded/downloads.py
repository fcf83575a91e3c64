"""Downloads into a place that the processes of a user share."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_S = 0.1


@contextmanager
def one_at_a_time(lock: Path, doing: str, report: Callable[[str], object], wait_s: float = 600.0) -> Iterator[None]:
    """Held by one process at a time, and given up by one that dies; the next is told what is being done, and waits, for
    `wait_s` at most: then it goes on, as whatever the other one waits for it will meet too.

    Raises OSError for a file that cannot be written or locked.
    """
    with lock.open("w", encoding="utf-8") as file:
        if not _take(file.fileno()):
            report(f"waiting for another process that is {doing}")
            until = time.monotonic() + wait_s
            while not _take(file.fileno()) and time.monotonic() < until:
                time.sleep(_LOOK_S)
        yield


def _take(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
