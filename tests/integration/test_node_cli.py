"""`kafka-journal node` as people run it: two commands are a journal with a store, a standby and a worker each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import COMMAND, command_env, new_journal, run_command

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

DEADLINE_S = 120.0
ENV = {
    "KAFKA_JOURNAL_FENCE_CHECK_MS": "2000",
    "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "4000",
    "KAFKA_JOURNAL_NODE_HEARTBEAT_MS": "300",
    "KAFKA_JOURNAL_NODE_REPORT_MS": "1000",
    "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "4000",
}


class Machine:
    """One of the machines of a deployment: its directory, and the node on it."""

    def __init__(self, bootstrap: str, journal: str, directory: Path, name: str) -> None:
        self.name = name
        self.env = command_env(bootstrap, journal, directory / name, ENV)
        self.roles = directory / f"{name}.roles"
        self.log_file = directory / f"{name}.log"
        note = f"import os; open('{self.roles}', 'a').write(os.environ['KAFKA_JOURNAL_ROLE'] + '\\n')"
        hook = f'python3 -c "{note}"'
        hooks = {f"KAFKA_JOURNAL_ON_{role}_COMMAND": hook for role in ("ACTIVE", "STANDBY", "FENCED")}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [str(COMMAND), "node", "--name", name, "--with-worker"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env | hooks,
            )

    def run(self, *arguments: str) -> Any:
        """A command on this machine; what it prints as JSON."""
        return self.run_lines(*arguments)[0]

    def run_lines(self, *arguments: str) -> list[Any]:
        """The same of one that prints JSON lines."""
        ended = run_command(*arguments, "--json", env=self.env)
        assert ended.returncode == 0, ended.stderr + self.log_file.read_text()[-4000:]
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def wait(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The status once something holds in it."""
        until = time.monotonic() + DEADLINE_S
        while not holds(status := self.run("status")):
            assert time.monotonic() < until, f"not {what}: {status}\n{self.log_file.read_text()[-4000:]}"
        return dict(status)

    def said(self, text: str) -> str:
        """When it, or its worker, last logged this; moments compare as text."""
        line = [line for line in self.log_file.read_text().splitlines() if text in line][-1]
        return line[: len("2000-01-01 00:00:00,000")]

    def worker_pid(self) -> int:
        lines = [line for line in self.log_file.read_text().splitlines() if "the worker runs, pid" in line]
        return int(lines[-1].rsplit(" ", 1)[1])


def node(status: dict[str, Any], name: str) -> dict[str, Any]:
    """A node's line; an empty one's if it has not reported."""
    found = [line for line in status["nodes"] if line["name"] == name]
    return found[0] if found else {"role": "", "fit": False, "gone": False}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()


def test_two_commands_are_a_highly_available_store(bootstrap: str, tmp_path: Path) -> None:
    journal = new_journal(bootstrap, 2, directory=tmp_path / "command", env=ENV)
    with ExitStack() as ending:

        def start(name: str) -> Machine:
            machine = Machine(bootstrap, journal, tmp_path, name)
            ending.callback(machine.process.kill)
            return machine

        one = start("one")
        one.wait("active", lambda status: node(status, "one")["role"] == "active")
        one.run("send", "orders", "hello", "--create", "--count", "20", "--node")
        two = start("two")
        two.wait("fit", lambda status: bool(node(status, "two")["fit"]))

        # what is acknowledged stays so, and what is not stays there, whoever serves it
        assert len(one.run_lines("receive", "orders", "--count", "5", "--node")) == 5
        worker = one.worker_pid()
        one.process.kill()
        status = two.wait("active", lambda status: node(status, "two")["role"] == "active")
        failover = node(status, "two")["last_failover"]
        assert failover["warm"]
        assert failover["total_ms"] >= failover["gate_ms"] > 0
        assert two.run("queues", "--node")[0]["depth"] == 15
        two.wait("gone", lambda status: bool(node(status, "one")["gone"]))
        assert not alive(worker)

        # a worker that dies is started again
        worker = two.worker_pid()
        os.kill(worker, signal.SIGKILL)
        two.run("send", "orders", "again", "--node")
        two.wait("again with a worker", lambda status: two.worker_pid() != worker and bool(status["workers"]))

        one = start("one")
        one.wait("fit", lambda status: bool(node(status, "one")["fit"]))
        assert two.run("node", "hand-over")["node"] == "one"
        assert one.run("queues", "--node")[0]["depth"] == 16

        # one that ends hands over, and its worker goes on until the other is active
        two.wait("fit", lambda status: bool(node(status, "two")["fit"]))
        worker = one.worker_pid()
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(DEADLINE_S) == 0
        assert not alive(worker)
        assert two.said("node two is active") < one.said("stopped; everything it had read is checkpointed")
        assert node(two.run("status"), "two")["role"] == "active"
        assert two.run("queues", "--node")[0]["depth"] == 16
        two.process.send_signal(signal.SIGTERM)
        assert two.process.wait(DEADLINE_S) == 0
        assert two.run("status")["nodes"] == []
        assert one.roles.read_text().split() == ["standby", "active", "standby", "active"]
        assert two.roles.read_text().split() == ["standby", "active", "standby", "active"]
