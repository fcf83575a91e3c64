"""The smoke test of the suite, on any brokers: a worker, a broker and the active node are killed, and nothing is lost.

Each is dead until the others have gone on without it. What was acknowledged has every kind of transaction in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.ending import Ending
from tests.chaos.faults.fault import active_node, any_broker, any_worker
from tests.chaos.fold import shard_of
from tests.chaos.history import Activation
from tests.chaos.report import Report
from tests.chaos.run import Plan, run

OPERATIONS = 3000
"""Enough for every kind of transaction to be among them."""
MEANWHILE = 200
"""Operations that the others acknowledge before a process is started again, and all of them after it."""


def survive_kills(cluster: Cluster, out: Path) -> Report:
    """Has everything judged; `smoke.json` and `smoke.png` in `out` tell of it. All nodes have stopped."""
    faults = [
        Ending("kill worker", cluster.seed, any_worker, clean=False),
        Ending("kill broker", cluster.seed, any_broker, clean=False),
        Ending("kill active node", cluster.seed, active_node, clean=False),
    ]
    plan = Plan(
        "smoke",
        faults,
        operations=OPERATIONS,
        injections=len(faults),
        hold_s=(0.0, 0.5),
        meanwhile=MEANWHILE,
        calm_operations=(MEANWHILE, 2 * MEANWHILE),
    )
    outcome = run(cluster, plan, out)
    report = outcome.report
    print(report.summary())
    assert report.wrong == []
    assert report.never_injected == []
    assert missing_kinds(outcome.activations.values(), cluster.shards) == []
    return report


def missing_kinds(activations: Iterable[Activation], shards: int) -> list[str]:
    """The kinds of transactions of which none was acknowledged."""
    touched: dict[int, set[int]] = defaultdict(set)
    acknowledged: dict[str, set[int]] = defaultdict(set)
    for activation in activations:
        for one in activation.submitted:
            if one.n not in activation.done:
                continue
            if one.op in ("prepare", "commit", "rollback"):
                acknowledged[one.op].add(one.tx)
            elif one.tx:
                touched[one.tx].add(shard_of(one.id, shards))
    over_several = {tx for tx, held in touched.items() if len(held) > 1}
    prepared = acknowledged["prepare"]
    kinds = {
        "committed over several shards": acknowledged["commit"] & over_several - prepared,
        "prepared over several shards": prepared & over_several,
        "settled when prepared": (acknowledged["commit"] | acknowledged["rollback"]) & prepared,
    }
    return [kind for kind, transactions in kinds.items() if not transactions]
