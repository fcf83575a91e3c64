"""Nodes and workers killed with SIGKILL at random points of a workload: nothing acknowledged is lost, torn or brought
back, and everything is applied once and in order."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.judgement import judge, settings_of
from tests.support.processes.command import new_journal
from tests.support.processes.node import NodeProcess
from tests.support.processes.worker import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SEED = int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", "20260"))
ROUNDS = int(os.environ.get("KAFKA_JOURNAL_TEST_KILLS", "1"))
"""How often the plan of kills is gone through."""

ENV = {
    "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000",
    "KAFKA_JOURNAL_LIMITS__TRANSACTION_BUFFER_OPERATIONS_MAX": "25",
    "KAFKA_JOURNAL_CHECKPOINT_INTERVAL_MS": "50",
}
"""Dead workers are noticed soon; transactions of 40 operations are staged."""


class Killing:
    """One node and one worker of a journal, killed and started again in turns."""

    def __init__(self, bootstrap: str, shards: int, directory: Path) -> None:
        self.chance = random.Random(f"{SEED}/{shards}")
        self.journal = new_journal(bootstrap, shards, directory=directory / "command")
        self.worker = WorkerProcess(bootstrap, self.journal, directory / "worker", ENV)
        self.node = NodeProcess(bootstrap, self.journal, directory / "node", SEED, env=ENV)
        self.kills = 0

    def kill_node(self, *, active: bool) -> None:
        """While it appends, after a random number of acknowledgements; or at a random moment of its start."""
        before = self.node.written()
        self.node.start()
        if active:
            self.node.wait_for_lines('{"done":', count=self.chance.randrange(1, 800), after=before)
        else:
            time.sleep(self.chance.uniform(0.2, 1.2))
        self.node.kill()
        self.kills += 1

    def kill_worker(self) -> None:
        """While the node appends; its successor is there before the group has noticed that it is gone."""
        before = self.node.written()
        self.node.start()
        self.node.wait_for_lines('{"done":', count=self.chance.randrange(100, 800), after=before)
        self.worker.kill()
        self.worker.start(ready=False)
        self.node.kill()
        self.kills += 2


@pytest.mark.parametrize(("shards", "plan"), [(1, "anawanaw"), (8, "aanawaanwa")])
def test_nothing_acknowledged_is_lost_by_kills(bootstrap: str, tmp_path: Path, shards: int, plan: str) -> None:
    """a: the active node is killed; n: a node on its way there; w: worker and node."""
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    killing = Killing(bootstrap, shards, tmp_path)
    with killing.worker.start(ready=False), killing.node:
        for step in plan * ROUNDS:
            if step == "w":
                killing.kill_worker()
            else:
                killing.kill_node(active=step == "a")
        found = judge(settings_of(bootstrap, killing.journal, tmp_path / "judge"), killing.node.activations())
        verdict = found.verdict
        print(f"{killing.kills} kills, {len(verdict.effective)} activations, {verdict.acknowledged} acknowledged")
        assert killing.worker.terminate() == 0
