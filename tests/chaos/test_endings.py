"""Every cell of {SIGKILL, clean stop} x {brokers, nodes, workers} x {in turn, at random}, and every named point.

Nothing acknowledged is lost, nothing takes effect twice or out of order, whatever ends and comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from journal.embedded.cluster import EmbeddedKafka
from tests.chaos.cluster import Cluster
from tests.chaos.crash_points import ACTIVATION_POINTS, CHECKPOINT_POINTS
from tests.chaos.ending import KINDS, matrix
from tests.chaos.faults.crashing import CrashInActivation, CrashInCheckpoint
from tests.chaos.faults.fault import Fault
from tests.chaos.judging import SEED, check_the_checker
from tests.chaos.run import Outcome, Plan, run
from tests.support.long_form import long_form

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800), long_form]

OPERATIONS = 4000
"""Enough for every kind of operation to be among them."""


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_or_reordered_when_processes_end(
    three_brokers: EmbeddedKafka, tmp_path: Path, kind: str
) -> None:
    outcome = survived(three_brokers, tmp_path, kind, matrix(SEED, [kind]))
    if kind == "node":
        check_the_checker(outcome)


def test_nothing_is_lost_doubled_or_reordered_by_a_crash_anywhere(three_brokers: EmbeddedKafka, tmp_path: Path) -> None:
    faults = [
        *(CrashInActivation(SEED, point) for point in ACTIVATION_POINTS),
        *(CrashInCheckpoint(SEED, point) for point in CHECKPOINT_POINTS),
    ]
    survived(three_brokers, tmp_path, "points", faults)


def survived(kafka: EmbeddedKafka, directory: Path, name: str, faults: Sequence[Fault]) -> Outcome:
    """One fault after the other, all on one cluster."""
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    plan = Plan(
        name, faults, injections=len(faults), operations=OPERATIONS, hold_s=(0.2, 1.0), calm_operations=(200, 600)
    )
    with Cluster(directory, seed=SEED, kafka=kafka) as cluster:
        outcome = run(cluster, plan, directory)
    report = outcome.report
    print(report.summary())
    assert report.wrong == []
    assert report.never_injected == []
    return outcome
