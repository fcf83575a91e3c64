"""The only broker dies under load, and is restarted: a lone node and its worker survive it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from journal.kafka.embedded import EmbeddedKafka
from tests.support.judgement import judge, settings_of
from tests.support.nodes import NodeProcess
from tests.support.processes import WorkerProcess, new_journal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SEED = 13


@pytest.mark.parametrize("shards", [8])
def test_a_lone_node_survives_a_restart_of_the_only_broker(kafka: EmbeddedKafka, tmp_path: Path, shards: int) -> None:
    bootstrap = kafka.bootstrap_servers
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    worker = WorkerProcess(bootstrap, journal, tmp_path / "worker")
    with worker.start(ready=False), NodeProcess(bootstrap, journal, tmp_path / "node", SEED) as node:
        try:
            node.start().wait_for('{"done":', count=500)
            kafka.kill(1)
        finally:
            kafka.start()
        node.wait_for('{"done":', count=node.history().count('{"done":') + 500)
        node.stop()
        (activation,) = node.activations()
        assert activation.critical == []
        resolved = {line["done"] for line in map(json.loads, node.history().splitlines()) if "done" in line}
        settled = {line["tx"] for line in activation.submitted if line["op"] in ("commit", "prepare")}
        expected = {line["n"] for line in activation.submitted if line.get("tx", 0) in settled | {0}}
        assert expected <= resolved
        judge(settings_of(bootstrap, journal, tmp_path / "judge"), [activation])
        assert worker.terminate() == 0
