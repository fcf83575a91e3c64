"""Downloads into a cache that the processes of a user share, and the commands that download."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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


def run_quietly(command: Sequence[str], doing: str, timeout_s: float) -> tuple[int, str]:
    """The exit code and the output of a command that downloads. A terminal shows in one line what it is `doing`, and
    for how long. Raises subprocess.TimeoutExpired, and OSError for a command that cannot be run."""
    began = time.monotonic()
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            while (status := process.poll()) is None:
                seconds = time.monotonic() - began
                if seconds >= timeout_s:
                    raise subprocess.TimeoutExpired(command, timeout_s)
                _show(f"{doing}: {seconds:.0f} s")
                time.sleep(_LOOK_S)
        finally:
            _show("")
            process.kill()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def _show(line: str) -> None:
    """Show a line in the place of the one before, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
