"""A node that is stopped while its successor activates, and goes on afterwards: it is fenced, whatever it was doing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.evidence import frames_of
from tests.support.judgement import judge, settings_of
from tests.support.nodes import NodeProcess
from tests.support.processes import WorkerProcess, new_journal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SEED = 7
ENV = {"KAFKA_JOURNAL_FENCE_CHECK_MS": "500"}


def resume_and_see_it_fenced(zombie: NodeProcess) -> None:
    before = len(zombie.history())
    zombie.resume()
    zombie.wait_for('{"critical":', after=before)
    zombie.stop()
    assert [activation.critical for activation in zombie.activations()] == [["FencedError"]]
    assert '{"refusal":"FencedError","state":"fenced"}' in zombie.history()[before:]


@pytest.mark.parametrize("shards", [1, 8])
def test_a_stopped_node_that_goes_on_is_fenced_idle_or_appending(bootstrap: str, tmp_path: Path, shards: int) -> None:
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    idle = NodeProcess(bootstrap, journal, tmp_path / "idle", SEED, operations=300, env=ENV)
    appending = NodeProcess(bootstrap, journal, tmp_path / "appending", SEED, env=ENV)
    with WorkerProcess(bootstrap, journal, tmp_path / "worker").start(ready=False), idle, appending:
        idle.start().wait_for('{"ended":')
        idle.pause()
        appending.start().wait_for('{"done":', count=500)
        resume_and_see_it_fenced(idle)
        done = appending.history().count('{"done":')
        appending.wait_for('{"done":', count=done + 200)
        appending.pause()
        successor = NodeProcess(bootstrap, journal, tmp_path / "successor", SEED, operations=300, env=ENV)
        with successor.start():
            successor.wait_for('{"ended":')
            resume_and_see_it_fenced(appending)
            successor.stop()
        histories = [node.activations()[0] for node in (idle, appending, successor)]
        assert [activation.critical for activation in histories] == [["FencedError"], ["FencedError"], []]
        found = judge(settings_of(bootstrap, journal, tmp_path / "judge"), histories)
        for wal in found.evidence.wal:
            epochs = [frame.epoch for _, frame in frames_of(wal)]
            assert epochs == sorted(epochs), "a frame of an older epoch lies behind a newer marker"
