"""What tests of the suite ask in the end, and on the way."""

from __future__ import annotations

import os

import pytest

from tests.chaos.checker import check
from tests.chaos.cluster import Cluster
from tests.chaos.history import read_history
from tests.chaos.plants import PLANTS, Run
from tests.chaos.processes import NodeProcess, wait_for
from tests.chaos.report import Report
from tests.chaos.run import Outcome, judge

SEED = int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", "20264"))
LONG = "KAFKA_JOURNAL_TEST_LONG"
long_form = pytest.mark.skipif(not os.environ.get(LONG), reason=f"takes minutes: `make chaos` runs it, or set {LONG}=1")


def assert_sound(cluster: Cluster) -> None:
    """Everything agrees with everything."""
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    assert judge(cluster, Report("judged", SEED)).report.faults_found == []


def check_the_checker(outcome: Outcome) -> None:
    """What the run left, with one thing changed: each is caught as what it is."""
    assert outcome.report.activations > 2
    good = Run(outcome.evidence, outcome.activations)
    without_place = set()
    for plant, (change, kind) in PLANTS.items():
        spoilt = good.copy()
        try:
            change(spoilt)
        except LookupError:
            without_place.add(plant)
            continue
        assert check(spoilt.evidence, spoilt.activations).counts[kind], plant
    assert without_place <= {"a transaction in doubt forgotten", "a transaction settled by nobody"}, (
        "only transactions in doubt may happen to be all settled whenever somebody looks"
    )


def wait_for_successor(cluster: Cluster, left: NodeProcess) -> None:
    """Another node is active in a newer epoch."""
    epoch = left.epoch
    wait_for(
        lambda: any(node is not left and node.epoch > epoch for node in cluster.nodes), f"a successor of {left.name}"
    )


def roles_of(node: NodeProcess) -> list[str]:
    """What it was, one after the other."""
    return [change.role for change in read_history([node.history_file]).roles]
