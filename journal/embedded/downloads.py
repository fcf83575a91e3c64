"""Downloads into a cache that the processes of a user share."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_S = 0.1


@contextmanager
def one_at_a_time(lock: Path, doing: str, report: Callable[[str], object], wait_s: float = 600.0) -> Iterator[None]:
    """A lock for one download at a time, which is freed when its process dies. A process that finds it taken reports
    what is `doing` and waits, for `wait_s` at most. After that it continues without the lock, because what delays the
    holder will delay it too.

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
