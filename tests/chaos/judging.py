"""What tests of the suite ask in the end, and on the way."""

from __future__ import annotations

import time

from tests.chaos.checker import check
from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import FaultOfOne
from tests.chaos.plants import PLANTS, Run
from tests.chaos.processes import NodeProcess, wait_for
from tests.chaos.report import Report
from tests.chaos.run import Outcome, judge
from tests.support.children.appending import IN_FLIGHT_MAX
from tests.support.long_form import seed

SEED = seed(20264)


def assert_sound(cluster: Cluster) -> None:
    """Everything agrees with everything."""
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    assert judge(cluster, Report("judged", SEED)).report.wrong == []


def outlast(cluster: Cluster, fault: FaultOfOne, more: int) -> None:
    """The fault lasts for longer than a session, and until `more` operations were acknowledged without its target. Once
    it is healed, all go on. A target that is a node then knows that it was fenced, and is a standby."""
    cluster.wait_for_shares()
    fenced_before = {node.name: node.fenced for node in cluster.nodes}
    fault.inject(cluster)
    injected, process = time.monotonic(), fault.target
    cluster.wait_until_left_out(process)
    until = injected + cluster.session_s(process.kind)
    wait_for(lambda: time.monotonic() > until, f"the end of the session of {process.name}")
    cluster.wait_for_acknowledgements(more)
    fault.heal(cluster)
    cluster.wait_for_acknowledgements(more)
    if isinstance(process, NodeProcess):
        fenced = fenced_before[process.name] + 1
        wait_for(lambda: (process.fenced, process.role) == (fenced, "standby"), f"{process.name} as a standby")


def bear(cluster: Cluster, fault: FaultOfOne, requests: int) -> None:
    """The fault lasts while so many requests are made and answered; then it is healed, and all go on."""
    fault.inject(cluster)
    for _ in range(requests):
        cluster.wait_for_acknowledgements(IN_FLIGHT_MAX + 1)
    fault.heal(cluster)
    cluster.wait_for_acknowledgements(IN_FLIGHT_MAX + 1)


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
    assert without_place <= {
        "a transaction in doubt forgotten",
        "a transaction settled by nobody",
        "a load tells a transaction in doubt twice",
    }, "only transactions in doubt may happen to be all settled whenever somebody looks"
