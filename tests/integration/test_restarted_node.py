"""A node that is started again at once: its worker has the copies of the former one, which was still ending."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes.command import new_journal
from tests.support.processes.machine import Machine, node

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_the_worker_of_a_node_that_is_started_again_has_the_copies_of_the_former_one(
    bootstrap: str, tmp_path: Path
) -> None:
    journal = new_journal(bootstrap, 2, directory=tmp_path / "command")
    with ExitStack() as ending:

        def start() -> Machine:
            machine = Machine(bootstrap, journal, tmp_path, "one", {})
            ending.callback(machine.process.kill)
            return machine

        first = start()
        first.wait_for_status(
            "active", lambda status: node(status, "one")["role"] == "active" and status["workers"] != []
        )
        worker = first.worker_pid()
        first.process.kill()
        first.process.wait()
        second = start()

        def copies() -> list[str]:
            return [line for line in second.log_file.read_text().splitlines() if ", local copies in " in line]

        second.wait_for_status("another worker", lambda _: second.worker_pid() != worker and len(copies()) == 2)
        assert all(line.endswith("/worker-0") for line in copies())
        assert not list(tmp_path.rglob("worker-1"))
