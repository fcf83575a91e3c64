"""A command in the foreground of a terminal, which has its Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.support.processes import COMMAND

TIMEOUT_S = 60.0


class Terminal:
    """A command in a terminal's foreground: Ctrl-C goes to its process and all that are in its group."""

    def __init__(self, *arguments: str, env: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(COMMAND), *arguments], env=env, stdout=file, stderr=file, start_new_session=True
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + TIMEOUT_S
        while text not in self.log():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.05)

    def children(self) -> list[psutil.Process]:
        """All processes that it has started, and theirs."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def press_ctrl_c(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def ctrl_c(self) -> int:
        """The exit code."""
        self.press_ctrl_c()
        return self._process.wait(TIMEOUT_S)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
