"""Ends the brokers of a directory when the process that started them is gone, however it ended.

It runs as `python -m journal.embedded.guard DIRECTORY PARENT_PID PARENT_STARTED`, in a session of its own. It watches
the process; the kernel's parent-death signal would watch the thread that started the broker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from journal.embedded.process import ProcessId, read_pid_file, start_time

POLL_S = 0.2
END_TIMEOUT_S = 10.0
SWEEPS = 5  # the pid file of a broker that started in the parent's last moment may come a moment later


class Guard:
    """The guard process for the brokers that this process starts in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Starts the guard unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        started = start_time(os.getpid())
        assert started is not None, "this process is alive"
        command = [
            sys.executable,
            "-m",
            "journal.embedded.guard",
            str(self._directory),
            str(os.getpid()),
            started,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def end(self) -> None:
        """Ends the guard, because its brokers have ended."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(END_TIMEOUT_S)
            self._process = None


def watch(directory: Path, parent: ProcessId) -> None:
    while parent.is_alive():
        time.sleep(POLL_S)
    for _ in range(SWEEPS):
        kill_brokers(directory)
        time.sleep(POLL_S)


def kill_brokers(directory: Path) -> list[ProcessId]:
    """Sends SIGKILL to every running broker of a directory; returns these."""
    found = [read_pid_file(path) for path in directory.glob("broker-*/broker.pid")]
    running = [process for process in found if process is not None]
    for process in running:
        process.send(signal.SIGKILL)
    return running


if __name__ == "__main__":
    watch(Path(sys.argv[1]), ProcessId(int(sys.argv[2]), sys.argv[3]))
