"""Processes of the embedded Apache Kafka, found again by pid files. A reused pid is not taken for the old process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
PS_TIMEOUT_S = 10.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid and the time when its process began. Together they name one process of this machine for ever."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        return start_time(self.pid) == self.started

    def is_stopped(self) -> bool:
        """Whether all threads of the process stand still after SIGSTOP.

        The thread that takes the signal stops the others when it runs next. On a busy machine they go on until then.
        """
        if _BOOT_ID.exists():
            return all(state in "Tt" for state in _thread_states(self.pid))
        return _ps("stat=", self.pid).startswith("T")

    def send(self, number: signal.Signals) -> bool:
        """Sends the signal if this very process is alive; returns whether it was."""
        if not self.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def start_time(pid: int) -> str | None:
    """The time when a process began, as a text to compare; None if it is gone or waits to be reaped."""
    if _BOOT_ID.exists():
        return _start_time_linux(pid)
    state, _, started = _ps("stat=,lstart=", pid).partition(" ")
    return started.strip() if state and not state.startswith("Z") else None


def _ps(columns: str, pid: int) -> str:
    answer = subprocess.run(
        ["ps", "-o", columns, "-p", str(pid)], capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False
    )
    return answer.stdout.strip()


def _stat_linux(path: Path) -> list[str]:
    """The fields behind the process's name; none if the process is gone."""
    try:
        stat = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat[stat.rindex(")") + 2 :].split()  # the process's name, before these fields, may hold any character


def _thread_states(pid: int) -> list[str]:
    stats = [_stat_linux(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [fields[0] for fields in stats if fields]


def _start_time_linux(pid: int) -> str | None:
    fields = _stat_linux(Path(f"/proc/{pid}/stat"))
    if not fields:
        return None
    threads = int(fields[17])
    # while other threads of the process end, its ports and files are not free yet
    if fields[0] in "ZX" and threads <= 1:
        return None
    return f"{_BOOT_ID.read_text(encoding='ascii').strip()}/{fields[19]}"


def write_pid_file(path: Path, pid: int) -> ProcessId | None:
    """Writes the pid file of a process that was just started; returns None if the process has died already."""
    started = start_time(pid)
    if started is None:
        return None
    process = ProcessId(pid, started)
    write_atomically(path, json.dumps({"pid": pid, "started": started}) + "\n")
    return process


def read_pid_file(path: Path) -> ProcessId | None:
    """The live process that the file names; None if there is none, or if it is dead."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        process = ProcessId(int(found["pid"]), str(found["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return process if process.is_alive() else None


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that a reader finds either the old content or the new one, also after a crash."""
    partial = path.with_name(path.name + ".part")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Polls until the condition holds or the time is up; returns whether it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def end_processes(processes: list[ProcessId], timeout_s: float) -> None:
    """Sends SIGTERM to all processes, and SIGKILL to those that are alive when the time is up."""
    for process in processes:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)  # a paused process handles signals only when it continues
    if wait_until(lambda: not any(process.is_alive() for process in processes), timeout_s):
        return
    for process in processes:
        process.send(signal.SIGKILL)
    wait_until(lambda: not any(process.is_alive() for process in processes), timeout_s)
