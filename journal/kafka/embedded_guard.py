"""Ends the brokers of a directory when the process that started them is gone, however it went.

Run as `python -m journal.kafka.embedded_guard DIRECTORY PARENT_PID PARENT_STARTED` in a session of its own. It watches
the process, not the thread that started it (which is what the kernel's parent-death signal would watch).
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from journal.kafka.embedded_process import ProcessId, read_pid_file

POLL_S = 0.2
SWEEPS = 5  # a broker started in the parent's last moment may have its pid file a moment later


def guard(directory: Path, parent: ProcessId) -> None:
    while parent.is_alive():
        time.sleep(POLL_S)
    for _ in range(SWEEPS):
        for path in directory.glob("broker-*/broker.pid"):
            process = read_pid_file(path)
            if process is not None:
                process.send(signal.SIGKILL)
        time.sleep(POLL_S)


if __name__ == "__main__":
    guard(Path(sys.argv[1]), ProcessId(int(sys.argv[2]), sys.argv[3]))
