"""Runs a cluster under a schedule of faults, then has everything judged and drawn."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from journal.journal import BlockingJournal
from tests.chaos.checker import Evidence, check
from tests.chaos.cluster import Cluster
from tests.chaos.evidence import settled_evidence
from tests.chaos.faults.fault import Fault, FaultOfOne
from tests.chaos.history import Activation, read_history
from tests.chaos.loading import DigestLoader
from tests.chaos.report import Injection, Report
from tests.support.judgement import settings_of

log = logging.getLogger(__name__)

LAST_OPERATIONS = 200
RECOVERY_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Plan:
    """What is done to a cluster, and for how long."""

    name: str
    faults: Sequence[Fault]
    at_random: bool = False
    """Whether the next fault is drawn, and not the one after the last. Each comes once before any comes again."""
    operations: int = 0
    """Acknowledged before it may end, and..."""
    seconds: float = 0.0
    """... time that must have passed, and..."""
    injections: int = 0
    """... faults injected."""
    meanwhile: int = 0
    """Acknowledged in spite of a fault, and then..."""
    hold_s: tuple[float, float] = (0.5, 4.0)
    """... time until it is healed."""
    calm_operations: tuple[int, int] = (200, 2000)
    """Acknowledged between a fault's end and the next."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What is left out of the plan as this machine does not allow it, and the reason."""


@dataclass(frozen=True)
class Outcome:
    """A run's report, and what it was made from."""

    report: Report
    evidence: Evidence
    activations: dict[int, Activation]


def run(cluster: Cluster, plan: Plan, out: Path) -> Outcome:
    """The whole plan, on a cluster that has just started; leaves a history (JSON) and a timeline (PNG) in `out`.

    All nodes have stopped when it returns. Raises AssertionError if the cluster does not come back from a fault.
    """
    from tests.chaos.timeline import draw  # matplotlib is a tenth of what collecting all tests costs

    planned = [fault.name for fault in plan.faults]
    report = Report(plan.name, cluster.seed, planned=planned, lacks=dict(plan.lacks))
    began = time.time()
    try:
        _carry_out(cluster, plan, report, began)
        outcome = judge(cluster, report)
    except AssertionError as error:
        report.faults_found.append(f"the run came to no end: {error}")
        report.ended_by_themselves += cluster.take_ended_by_themselves()
        raise
    finally:
        history = read_history([node.history_file for node in cluster.nodes])
        report.take_times(began, history.acknowledged_at, history.roles)
        report.acknowledged = len(history.acknowledged_at)
        report.write(out / f"{plan.name}.json")
        draw(report, out / f"{plan.name}.png")
    return outcome


def _carry_out(cluster: Cluster, plan: Plan, report: Report, began: float) -> None:
    chance = random.Random(f"{plan.name}/{cluster.seed}")
    faults = schedule(plan, chance)
    before = cluster.acknowledged
    cluster.wait_for_acknowledgements(plan.calm_operations[0])
    while (
        time.time() - began < plan.seconds
        or len(report.injections) < plan.injections
        or cluster.acknowledged - before < plan.operations
    ):
        _inject(cluster, plan, next(faults), chance, report, began)
        report.seconds = time.time() - began


def schedule(plan: Plan, chance: random.Random) -> Iterator[Fault]:
    """The plan's faults without end: in turn; or each once, in an order that is drawn, and then at random."""
    if not plan.at_random:
        yield from cycle(plan.faults)
    yield from chance.sample(plan.faults, len(plan.faults))
    while True:
        yield chance.choice(plan.faults)


def _inject(cluster: Cluster, plan: Plan, fault: Fault, chance: random.Random, report: Report, began: float) -> None:
    """One fault, from its injection until the workload has gone on for a while."""
    injection = Injection(fault.name, "", time.time() - began)
    report.injections.append(injection)
    fault.inject(cluster)
    if isinstance(fault, FaultOfOne):
        injection.target = fault.target.name
    injection.ended = [process.name for process in cluster.processes if not process.running]
    log.info("%.1f s: %s of %s", injection.at, fault, injection.target)
    cluster.wait_for_acknowledgements(plan.meanwhile, RECOVERY_TIMEOUT_S)
    time.sleep(chance.uniform(*plan.hold_s))
    fault.heal(cluster)
    injection.healed_at = time.time() - began
    cluster.wait_for_acknowledgements(chance.randrange(*plan.calm_operations), RECOVERY_TIMEOUT_S)
    of = f"{fault.name} of {injection.target}" if injection.target else fault.name
    report.ended_by_themselves += [f"{ended} after {of}" for ended in cluster.take_ended_by_themselves()]
    for process in cluster.processes:
        if not process.running:
            process.start(ready=False)


def judge(cluster: Cluster, report: Report) -> Outcome:
    """Lets the nodes end in order, activates once more, and compares everything with everything."""
    cluster.wait_for_acknowledgements(LAST_OPERATIONS, RECOVERY_TIMEOUT_S)
    for node in cluster.nodes:
        node.stop()
    history = read_history([node.history_file for node in cluster.nodes])
    last = final_activation(cluster)
    evidence = settled_evidence(cluster.bootstrap, cluster.journal)
    report.ended_by_themselves += [f"{ended} before the end" for ended in cluster.take_ended_by_themselves()]
    activations = {**history.activations, last.epoch: last}
    report.take_verdict(check(evidence, activations))
    return Outcome(report, evidence, activations)


def final_activation(cluster: Cluster) -> Activation:
    """What a node is given that activates now."""
    loader = DigestLoader()
    settings = settings_of(cluster.bootstrap, cluster.journal, cluster.directory / "judge", **cluster.settings)
    with BlockingJournal(settings, copy_name="judge") as journal:
        activated = journal.activate(loader)
    return Activation(activated.epoch, loader.lines, loaded=True)
