"""`kafka-journal worker` as a process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.processes.child import Child
from tests.support.processes.command import COMMAND, command_env


class WorkerProcess(Child):
    """A worker whose log and local copies are under `directory`.

    It is forked from a process that has imported its modules, unless it is another installation's `command`.
    """

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        env: Mapping[str, str] | None = None,
        *,
        command: Path = COMMAND,
        options: Sequence[str] = (),
    ) -> None:
        log = directory / f"worker-{uuid.uuid4().hex[:8]}.log"
        its = command_env(bootstrap, journal, directory, env)
        super().__init__("the worker", [command, "worker", *options], log, its)
        self._forked = ["worker", *options] if command == COMMAND else []

    def start(self, *, ready: bool = True) -> Self:
        """Start it; with `ready`, wait until it reads its first shards. A stopped one may be started again."""
        before = len(self.log())
        if self._forked:
            self.start_forked(self._forked)
        else:
            super().start()
        if ready:
            self.wait_for_log("reading from", after=before)
        return self

    def __enter__(self) -> Self:
        return self if self.started else self.start()
