"""A node that is stopped while its successor activates, and goes on afterwards: it is fenced, whatever it was doing."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.evidence import frames_of
from tests.support.in_process import made_journal, running_worker
from tests.support.judgement import judge, settings_of
from tests.support.processes.command import new_journal
from tests.support.processes.node import DrivenNode, NodeProcess
from tests.support.processes.worker import WorkerProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SEED = 7
ENV = {"KAFKA_JOURNAL_FENCE_CHECK_MS": "500"}
STORE_ENV = {
    "KAFKA_JOURNAL_FENCE_CHECK_MS": "1000",
    "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_JOURNAL_NODE_HEARTBEAT_MS": "300",
    "KAFKA_JOURNAL_STORE__ACQUIRE_GRACE_MS": "0",
}
"""What a node that is gone had handed out is ready again at once."""
MESSAGES, TAKEN = 20, 3


def resume_and_see_it_fenced(zombie: NodeProcess) -> None:
    before = zombie.written()
    zombie.resume()
    zombie.wait_for_lines('{"critical":', after=before)
    zombie.stop()
    assert [activation.critical for activation in zombie.activations()] == [["FencedError"]]
    assert '{"refusal":"FencedError","state":"fenced"}' in zombie.history()[before:]


@pytest.mark.parametrize("shards", [1, 8])
def test_a_stopped_node_that_goes_on_is_fenced_idle_or_appending(bootstrap: str, tmp_path: Path, shards: int) -> None:
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    idle = NodeProcess(bootstrap, journal, tmp_path / "idle", SEED, operations=300, env=ENV)
    appending = NodeProcess(bootstrap, journal, tmp_path / "appending", SEED, env=ENV)
    with WorkerProcess(bootstrap, journal, tmp_path / "worker").start(ready=False), idle, appending:
        idle.start().wait_for_lines('{"ended":')
        idle.pause()
        appending.start().wait_for_lines('{"done":', count=500)
        resume_and_see_it_fenced(idle)
        appending.wait_for_more('{"done":', 200)
        appending.pause()
        successor = NodeProcess(bootstrap, journal, tmp_path / "successor", SEED, operations=300, env=ENV)
        with successor.start():
            successor.wait_for_lines('{"ended":')
            resume_and_see_it_fenced(appending)
            successor.stop()
        histories = [node.activations()[0] for node in (idle, appending, successor)]
        assert [activation.critical for activation in histories] == [["FencedError"], ["FencedError"], []]
        found = judge(settings_of(bootstrap, journal, tmp_path / "judge"), histories)
        for wal in found.evidence.wal:
            epochs = [frame.epoch for _, frame in frames_of(wal)]
            assert epochs == sorted(epochs), "a frame of an older epoch lies behind a newer marker"


def test_a_stopped_node_that_goes_on_hands_out_nothing_of_what_its_successor_has(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path / "worker", shards=2, checkpoint_interval_ms=50)
    noted = tmp_path / "fenced"
    note = f"import os; open('{noted}', 'a').write(os.environ['KAFKA_JOURNAL_NODE'] + os.environ['KAFKA_JOURNAL_ROLE'])"
    hook = {"KAFKA_JOURNAL_ON_FENCED_COMMAND": f'{sys.executable} -c "{note}"'}

    def node(name: str) -> DrivenNode:
        return DrivenNode(bootstrap, settings.journal, tmp_path, name, STORE_ENV | hook, driver="driven_store")

    with running_worker(settings), node("zombie") as zombie, ExitStack() as ending:
        zombie.wait_for("active")
        zombie.wait_for("role", role="active")
        zombie.tell(f"fill {MESSAGES}")
        zombie.wait_for("filled")
        zombie.tell(f"take {TAKEN}")
        assert zombie.wait_for("took")["took"] == [[number, 0] for number in range(1, TAKEN + 1)]
        zombie.tell("flush")
        zombie.wait_for("flushed")
        successor = ending.enter_context(node("successor"))
        successor.wait_for("role", role="standby", fit=True)
        stopped = len(zombie.events)
        zombie.send_signal(signal.SIGSTOP)
        successor.wait_for("active")
        successor.wait_for("role", role="active")

        zombie.tell("take 5")  # the first thing that it does when it goes on
        zombie.send_signal(signal.SIGCONT)
        wait_until(lambda: {"took", "fenced", "standby"} <= {event["event"] for event in zombie.events[stopped:]})
        zombie.tell("take 1")
        wait_until(lambda: len([event for event in zombie.events[stopped:] if event["event"] == "took"]) == 2)
        asked = [event for event in zombie.events[stopped:] if event["event"] == "took"]
        assert [(event["took"], len(event["instead"])) for event in asked] == [([], 5), ([], 1)]
        assert "nothing" not in asked[1]["instead"], "a store that is closed says so"
        wait_until(noted.exists)
        wait_until(lambda: noted.read_text() == "zombiefenced")

        successor.tell(f"take {MESSAGES + 1}")
        took = successor.wait_for("took")
        assert took["took"] == [[number, 0] for number in range(1, MESSAGES + 1)]
        assert took["instead"] == ["nothing"]
