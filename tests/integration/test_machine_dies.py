"""A machine is gone, its node and its worker at once: the other machine's node and worker have everything.

With the settings that users have. What the wait consisted of is printed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.processes.command import new_journal, run_command
from tests.support.processes.machine import DEADLINE_S, Machine, node

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SHARDS = 4
BATCH = 20


class Sender:
    """Sends batches through a machine's node, one after the other, until one is refused or its node is gone."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.acknowledged: list[str] = []
        """Bodies, of which there are so many each as a batch has."""
        self.told = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over:
            number += 1
            command = ["send", "orders", f"message-{number}", "--create", "--count", str(BATCH), "--node"]
            if run_command(*command, env=self._machine.env).returncode != 0:
                break
            with self.told:
                self.acknowledged.append(f"message-{number}")
                self.told.notify_all()

    def wait_for(self, batches: int) -> None:
        with self.told:
            assert self.told.wait_for(lambda: len(self.acknowledged) >= batches, DEADLINE_S)

    def ended(self) -> None:
        self._over = True
        self._thread.join(DEADLINE_S)


@contextmanager
def machines(bootstrap: str, directory: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two, of which the first one's node is active and the second one's fit; each has shards for its worker."""
    journal = new_journal(bootstrap, SHARDS, directory=directory / "command")
    with ExitStack() as ending:
        made = []
        for name in ("one", "two"):
            made.append(Machine(bootstrap, journal, directory, name, {}))
            ending.callback(made[-1].process.kill)
            if name == "one":
                made[0].wait_for_status("active", lambda status: node(status, "one")["role"] == "active")
        made[1].wait_for_status("fit", lambda status: bool(node(status, "two")["fit"]) and len(status["workers"]) == 2)
        yield made[0], made[1]


def test_a_machine_that_dies_with_node_and_worker_takes_nothing_with_it(bootstrap: str, tmp_path: Path) -> None:
    with machines(bootstrap, tmp_path) as (one, two):
        sender = Sender(one)
        sender.wait_for(2)
        consumed = Counter(one.receive("orders", 5))
        sender.wait_for(4)
        died = one.die()
        sender.ended()
        status = two.wait_for_status("active", lambda status: node(status, "two")["role"] == "active")
        say_what_took(two, died, node(status, "two")["last_failover"])

        found = Counter(two.receive("orders"))
        for body in sender.acknowledged:
            assert found[body] + consumed[body] == BATCH
        unacknowledged = found.keys() - set(sender.acknowledged)
        assert len(unacknowledged) <= 1, "the batch that was on its way"
        two.run("send", "orders", "and on", "--node")


def say_what_took(machine: Machine, died: float, failover: dict[str, float]) -> None:
    """When this one's worker was told, when it read the other's shards, and when its node was active."""
    moments = {
        "worker told of it": "gave back",
        "activating": f"node {machine.name} is activating",
        "its shards read": "reading from",
        "active": f"node {machine.name} is active",
    }
    said = {what: machine.said_after(text, died) - died for what, text in moments.items()}
    print("from the machine's death, s: " + ", ".join(f"{what} {at:.2f}" for what, at in said.items()))
    print("of the take-over, ms: " + ", ".join(f"{part} {took}" for part, took in failover.items() if "_ms" in part))
