"""Machines of a deployment: on each `kafka-journal node --with-worker`, with a directory and a log of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from journal.cli.reading import opened_journal
from journal.cli.status.status import read_status, to_json
from journal.config import load_settings
from journal.embedded.process import start_time, wait_until
from journal.errors import OperatingError
from tests.support.processes.child import Child
from tests.support.processes.command import COMMAND, command_env, run_command

DEADLINE_S = 120.0
_LOOK_EVERY_S = 0.2
_STAMP = "2000-01-01 00:00:00,000"


class Machine(Child):
    """One of the machines of a deployment: its directory, and the node on it, which is started at once."""

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        name: str,
        env: Mapping[str, str],
        *,
        verbose: bool = False,
        as_json: bool = False,
        amqp: str = "",
    ) -> None:
        self.env = command_env(bootstrap, journal, directory / name, env)
        flags = {setting.removeprefix("KAFKA_JOURNAL_").lower(): value for setting, value in env.items()}
        self._settings = load_settings(None, bootstrap_servers=bootstrap, journal=journal, **flags)
        self.roles = directory / f"{name}.roles"
        note = f"import os; open('{self.roles}', 'a').write(os.environ['KAFKA_JOURNAL_ROLE'] + '\\n')"
        hook = f'python3 -c "{note}"'
        hooks = {f"KAFKA_JOURNAL_ON_{role}_COMMAND": hook for role in ("ACTIVE", "STANDBY", "FENCED")}
        command = ["node", "--name", name, "--with-worker", *bool(amqp) * ["--amqp", amqp]]
        words = [COMMAND, *verbose * ["--verbose"], *command, *as_json * ["--json"]]
        super().__init__(name, words, directory / f"{name}.log", self.env | hooks)
        self.start()

    def run(self, *arguments: str) -> Any:
        """A command on this machine; what it prints as JSON."""
        ended = run_command(*arguments, "--json", env=self.env)
        assert ended.returncode == 0, ended.stderr + self.log()[-4000:]
        return json.loads(ended.stdout)

    def receive(self, queue: str, count: int = 0) -> list[str]:
        """The bodies of so many messages (0: of all that there are) through this machine's node.

        One that does not know for a moment whether it is still active says so: then it is asked again.
        """
        bodies: list[str] = []
        until = time.monotonic() + DEADLINE_S
        while True:
            left = count - len(bodies) if count else 0
            ended = run_command("receive", queue, "--count", left, "--node", env=self.env)
            bodies += ended.stdout.split()
            if ended.returncode == 0:
                return bodies
            assert "call again" in ended.stderr, ended.stderr + self.log()[-4000:]
            assert time.monotonic() < until, ended.stderr + self.log()[-4000:]

    def wait_for_status(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The status once something holds in it: what the command prints, without a process for each look."""
        until = time.monotonic() + DEADLINE_S
        while True:
            status: dict[str, Any] | str
            try:
                with opened_journal(self._settings) as (kafka, rows):
                    status = to_json(read_status(kafka, self._settings, rows))
                if holds(status):
                    return status
            except OperatingError as error:
                status = repr(error)
            assert time.monotonic() < until, f"not {what}: {status}\n{self.log()[-4000:]}"
            time.sleep(_LOOK_EVERY_S)

    def said(self, text: str) -> str:
        """When it, or its worker, last logged this; moments compare as text."""
        return self._stamps(text)[-1]

    def said_after(self, text: str, after: float) -> float:
        """When it, or its worker, first logged this at or after a moment (seconds since 1970)."""
        stamps = [datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp() for stamp in self._stamps(text)]
        return next(stamp for stamp in stamps if stamp >= after)

    def _stamps(self, text: str) -> list[str]:
        return [line[: len(_STAMP)] for line in self.log().splitlines() if text in line]

    def worker_pid(self) -> int:
        lines = [line for line in self.log().splitlines() if "the worker runs, pid" in line]
        return int(lines[-1].rsplit(" ", 1)[1])

    def wait_for_worker(self) -> None:
        """Until its worker, started last, serves: on a busy machine that is long after its process began."""
        serves = f"-{self.worker_pid()} of journal"
        assert wait_until(lambda: bool(self._stamps(serves)), DEADLINE_S), self.log()[-4000:]

    def die(self) -> float:
        """The machine is gone, node and worker at once; when (seconds since 1970)."""
        at = time.time()
        for pid in (self.process.pid, self.worker_pid()):
            os.kill(pid, signal.SIGKILL)
        self.wait()
        return at


def node(status: dict[str, Any], name: str) -> dict[str, Any]:
    """A node's line; an empty one's if it has not reported."""
    found = [line for line in status["nodes"] if line["name"] == name]
    return found[0] if found else {"role": "", "fit": False, "gone": False}


def wait_for_end(pid: int) -> None:
    """The process has ended when this returns. It may be the child of any process."""
    assert wait_until(lambda: start_time(pid) is None, DEADLINE_S), f"process {pid} still runs"
