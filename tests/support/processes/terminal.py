"""A command in the foreground of a terminal, which has its Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from tests.support.processes.child import Child
from tests.support.processes.command import COMMAND


class Terminal(Child):
    """A command in a terminal's foreground: Ctrl-C goes to its process and to all that are in its group."""

    def __init__(self, *arguments: str, env: dict[str, str], log: Path) -> None:
        super().__init__("the command", [COMMAND, *arguments], log, env, own_session=True)
        self.start()

    def children(self) -> list[psutil.Process]:
        """All processes that it has started, and theirs."""
        return psutil.Process(self.pid).children(recursive=True)

    def press_ctrl_c(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def ctrl_c(self) -> int:
        """The exit code."""
        self.press_ctrl_c()
        return self.wait()
