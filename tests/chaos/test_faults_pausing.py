"""Processes that stop for a while and go on: a zombie is fenced, steps down by itself, and nothing is lost by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journal.kafka.embedded import EmbeddedKafka
from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import active_node, any_broker
from tests.chaos.faults.pausing import Pause, PauseInTransaction
from tests.chaos.history import read_history
from tests.chaos.processes import NodeProcess, wait_for
from tests.chaos.report import Report
from tests.chaos.run import judge

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

SEED = int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", "20264"))


def assert_sound(cluster: Cluster) -> None:
    """Everything agrees with everything."""
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    report = judge(cluster, Report("pausing", SEED)).report
    assert report.faults_found == []


def wait_for_successor(cluster: Cluster, zombie: NodeProcess) -> NodeProcess:
    """Another node that is active in a newer epoch."""

    def succeeded() -> bool:
        return any(node is not zombie and node.epoch > zombie.epoch for node in cluster.nodes)

    wait_for(succeeded, f"a successor of {zombie.name}")
    return next(node for node in cluster.nodes if node.epoch > zombie.epoch)


def roles_of(node: NodeProcess) -> list[str]:
    return [change.role for change in read_history([node.history_file]).roles]


@pytest.mark.parametrize("rate", [2000, 1], ids=["busy", "idle"])
def test_a_node_stopped_beyond_its_session_is_fenced_and_a_standby_again(
    three_brokers: EmbeddedKafka, tmp_path: Path, rate: int
) -> None:
    fault = Pause(SEED, active_node)
    with Cluster(tmp_path, seed=SEED, kafka=three_brokers, rate=rate) as cluster:
        cluster.wait_for_acknowledgements(1)
        fault.inject(cluster)
        zombie = fault.target
        assert isinstance(zombie, NodeProcess)
        wait_for_successor(cluster, zombie)
        fault.heal(cluster)
        wait_for(lambda: roles_of(zombie)[-1] == "standby", f"{zombie.name} as a standby")
        assert "fenced" in roles_of(zombie)
        if rate > 1:
            pause_a_worker_and_a_broker(cluster)
            assert_sound(cluster)


def pause_a_worker_and_a_broker(cluster: Cluster) -> None:
    """The others go on meanwhile."""
    for fault, meanwhile in ((PauseInTransaction(SEED), 1000), (Pause(SEED, any_broker), 500)):
        fault.inject(cluster)
        cluster.wait_for_acknowledgements(meanwhile)
        fault.heal(cluster)
        cluster.wait_for_acknowledgements(500)
