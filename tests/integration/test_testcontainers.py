"""The journal on a cluster of containers: worker, broker and node are killed; the next node has everything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.containers import ContainerKafka, NoContainersError, find_image
from tests.support.judgement import judge, settings_of
from tests.support.nodes import NodeProcess
from tests.support.processes import WorkerProcess, command_env, new_journal, run_command

pytestmark = [pytest.mark.timeout(900)]

SEED = 17
BROKERS = 3
SHARDS = 4
STEP = 300
"""Acknowledgements between one thing and the next."""

PATIENCE_S = 240.0

ENV = {
    "KAFKA_JOURNAL_REPLICATION": str(BROKERS),
    "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000",
    "KAFKA_JOURNAL_FENCE_CHECK_MS": "20000",
    "KAFKA_JOURNAL_TRANSACTION_TIMEOUT_MS": "30000",
    "KAFKA_JOURNAL_REQUEST_TIMEOUT_MS": "60000",
}
"""Dead workers are noticed soon; a busy machine is not taken for a lost cluster."""


@pytest.fixture
def cluster() -> Iterator[ContainerKafka]:
    try:
        image = find_image()
    except NoContainersError as error:
        if os.environ.get("CI_DOCKER") == "required":
            raise
        pytest.skip(str(error))
    print(f"{BROKERS} brokers of {image}")
    with ContainerKafka(image, BROKERS) as running:
        yield running


def append_more(node: NodeProcess) -> None:
    node.wait_for('{"done":', count=node.history().count('{"done":') + STEP, timeout_s=PATIENCE_S)


def start_again(worker: WorkerProcess) -> None:
    before = len(worker.log())
    worker.start(ready=False)
    worker.wait_for_log("reading from", after=before, timeout_s=PATIENCE_S)


def test_kills_and_a_takeover_on_a_cluster_of_containers_lose_nothing(cluster: ContainerKafka, tmp_path: Path) -> None:
    bootstrap = cluster.bootstrap_servers
    journal = new_journal(bootstrap, SHARDS, directory=tmp_path / "command", env=ENV)
    first = NodeProcess(bootstrap, journal, tmp_path / "first", SEED, env=ENV)
    second = NodeProcess(bootstrap, journal, tmp_path / "second", SEED + 1, env=ENV)
    with WorkerProcess(bootstrap, journal, tmp_path / "worker", ENV).start(ready=False) as worker, first, second:
        append_more(first.start())
        worker.kill()
        append_more(first)
        start_again(worker)
        cluster.kill(1)
        append_more(first)
        cluster.restart(1)
        first.kill()
        append_more(second.start())
        second.stop(PATIENCE_S)
        settings = settings_of(bootstrap, journal, tmp_path / "judge")
        found = judge(settings, [*first.activations(), *second.activations()])
        assert worker.terminate() == 0
    assert [len(node.activations()) for node in (first, second)] == [1, 1]
    assert found.evidence.shards == SHARDS
    env = command_env(bootstrap, journal, tmp_path / "command", ENV)
    verified = run_command("verify", env=env)
    assert verified.returncode == 0, verified.stdout + verified.stderr
