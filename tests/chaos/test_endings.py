"""Kafka's own transactions matrix, in short: {SIGKILL, clean stop} x {brokers, nodes, workers} x {in turn, at random}.

Nothing acknowledged is lost, nothing takes effect twice or out of order, whatever ends and comes back.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journal.kafka.embedded import EmbeddedKafka
from tests.chaos.checker import check
from tests.chaos.cluster import Cluster
from tests.chaos.ending import KINDS, matrix
from tests.chaos.plants import PLANTS, Run
from tests.chaos.run import Outcome, Plan, run

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

SEED = int(os.environ.get("KAFKA_JOURNAL_TEST_SEED", "20264"))
OPERATIONS = 4000
"""Enough for every kind of operation to be among them."""


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_or_reordered_when_processes_end(
    three_brokers: EmbeddedKafka, tmp_path: Path, kind: str
) -> None:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    faults = matrix(SEED, [kind])
    plan = Plan(
        kind, faults, injections=len(faults), operations=OPERATIONS, hold_s=(0.2, 1.0), calm_operations=(200, 600)
    )
    with Cluster(tmp_path, seed=SEED, kafka=three_brokers) as cluster:
        outcome = run(cluster, plan, tmp_path)
    report = outcome.report
    print(report.summary())
    assert report.faults_found == []
    assert report.ended_by_themselves == []
    assert {injection.fault for injection in report.injections} == {fault.name for fault in faults}
    if kind == "node":
        check_the_checker(outcome)


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
