"""Named points at which a process under test kills itself, as a crash just there would: nothing is flushed or closed.

A point is armed by its name in a file, also while the process runs, and stays so until the file is gone. The process
leaves the name in another file before it ends, so that no other death can be taken for this one.
`tests.chaos.crash_places` says where in a process each of them is.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

ACTIVATION_POINTS = (
    "before init",
    "after init",
    "control read",
    "marker sent",
    "marker committed",
    "first shard gated",
    "loaded",
    "READY",
)
CHECKPOINT_POINTS = ("applied", "produced", "commit sent", "committed", "local write", "offsets")
COMMIT_S = 0.004
"""A process is killed within this time of the begin of a commit: some have been carried out by then."""


class CrashPoints:
    """The faults that are armed for one process. `arm` and `disarm` are for the test, the rest for the process."""

    def __init__(self, home: Path) -> None:
        self._file = home / "crash-at"
        self._mark = home / "crashed-at"
        self._ending = threading.Lock()
        """Kept to the end: another shard that is at the point, too, would begin the mark anew."""

    def arm(self, point: str) -> None:
        assert point in (*ACTIVATION_POINTS, *CHECKPOINT_POINTS)
        self._mark.unlink(missing_ok=True)
        self._file.write_text(point, encoding="utf-8")

    def disarm(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def crashed_at(self) -> str:
        """The point at which the process has killed itself since `arm`; empty if it has not."""
        return self._mark.read_text(encoding="utf-8") if self._mark.exists() else ""

    def armed(self, point: str) -> bool:
        return self._file.exists() and self._file.read_text(encoding="utf-8") == point

    def reached(self, point: str) -> None:
        """The process ends here if it is to."""
        if self.armed(point):
            with self._ending:
                self._mark.write_text(point, encoding="utf-8")
                os.kill(os.getpid(), signal.SIGKILL)

    def sending(self, point: str) -> bool:
        """The process ends here a moment from now if it is to; the result says whether it will."""
        if not self.armed(point):
            return False
        threading.Timer(random.uniform(0, COMMIT_S), self.reached, [point]).start()
        return True
