"""The only broker dies, and is restarted: a lone node and its worker survive it, and wait for it as they start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.process import wait_until
from tests.support.judgement import judge, settings_of
from tests.support.processes.command import new_journal
from tests.support.processes.machine import Machine, node
from tests.support.processes.node import NodeProcess
from tests.support.processes.worker import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SEED = 13


@pytest.mark.parametrize("shards", [1, 8])
def test_a_lone_node_survives_a_restart_of_the_only_broker(brokers: EmbeddedKafka, tmp_path: Path, shards: int) -> None:
    bootstrap = brokers.bootstrap_servers
    journal = new_journal(bootstrap, shards, directory=tmp_path / "command")
    worker = WorkerProcess(bootstrap, journal, tmp_path / "worker")
    with worker.start(ready=False), NodeProcess(bootstrap, journal, tmp_path / "node", SEED) as lone:
        try:
            lone.start().wait_for_lines('{"done":', count=500)
            brokers.kill(1)
        finally:
            brokers.start()
        lone.wait_for_more('{"done":', 500)
        lone.stop()
        (activation,) = lone.activations()
        assert activation.critical == []
        resolved = {line["done"] for line in map(json.loads, lone.history().splitlines()) if "done" in line}
        done = {0, *(line["tx"] for line in activation.submitted if line["op"] == "commit")}
        # what is only prepared waits for its outcome
        expected = {line["n"] for line in activation.submitted if line.get("tx", 0) in done or line["op"] == "prepare"}
        assert expected <= resolved
        judge(settings_of(bootstrap, journal, tmp_path / "judge"), [activation])
        assert worker.terminate() == 0


def test_a_node_and_its_worker_that_start_before_the_broker_wait_for_it(brokers: EmbeddedKafka, tmp_path: Path) -> None:
    bootstrap = brokers.bootstrap_servers
    journal = new_journal(bootstrap, 1, directory=tmp_path / "command")
    brokers.kill(1)
    machine = Machine(bootstrap, journal, tmp_path, "early", {"KAFKA_JOURNAL_REQUEST_TIMEOUT_MS": "12000"})
    try:
        assert wait_until(lambda: "Kafka does not answer, and is asked again" in machine.log_file.read_text(), 60.0)
        brokers.start()
        machine.wait_for_status("active", lambda status: node(status, "early")["role"] == "active")
        machine.process.terminate()
        assert machine.process.wait(60.0) == 0
    finally:
        machine.process.kill()
        brokers.start()
