"""`python -m tests.chaos`: the long forms of the fault suite.

    python -m tests.chaos --matrix                      every cell of {kill, stop} x {broker, node, worker} x
                                                        {in turn, at random}, 100,000 operations each
    python -m tests.chaos --matrix --kinds node         those of nodes
    python -m tests.chaos --seconds 3600 --seed 7       a mix of every fault there is: each once, then at random

Prints the seed; leaves a timeline (PNG) and a history (JSON) of each run under --out, and exits with 1 if anything was
found wrong, or a broker, node or worker ended by itself.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
from pathlib import Path

from tests.chaos.brokers import chaos_kafka
from tests.chaos.cluster import Cluster
from tests.chaos.ending import KINDS, matrix
from tests.chaos.faults.fault import FaultOfOne
from tests.chaos.mix import mixed_run
from tests.chaos.run import Plan, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Long runs of the fault suite.")
    parser.add_argument("--matrix", action="store_true", help="Kafka's own transactions matrix instead of the mix")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="of the matrix")
    parser.add_argument("--operations", type=int, default=100_000, help="acknowledged in each cell of the matrix")
    parser.add_argument("--seconds", type=float, default=3600, help="how long the mix goes on")
    parser.add_argument("--rate", type=int, default=2000, help="operations a second, at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("tests.chaos").setLevel(logging.INFO)
    print(f"seed {chosen.seed}", flush=True)
    # on a disk: a temporary directory may be memory
    directory = chosen.out.absolute() / f"run-{chosen.seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if not (_matrix(chosen, directory) if chosen.matrix else _mix(chosen, directory)):
        sys.exit(f"what the run left is in {directory}")
    shutil.rmtree(directory)


def _matrix(chosen: argparse.Namespace, directory: Path) -> bool:
    """Each cell on a journal of its own, all on the same brokers."""
    good = True
    with chaos_kafka(directory / "kafka") as kafka:
        for fault in matrix(chosen.seed, chosen.kinds):
            assert isinstance(fault, FaultOfOne)
            plan = Plan(fault.name.replace(" ", "-"), [fault], operations=chosen.operations, injections=3)
            with Cluster(directory / plan.name, seed=chosen.seed, rate=chosen.rate, kafka=kafka) as cluster:
                report = run(cluster, plan, chosen.out).report
            print(report.summary(), flush=True)
            good = good and not report.wrong
    return good


def _mix(chosen: argparse.Namespace, directory: Path) -> bool:
    report = mixed_run(directory, chosen.out, seed=chosen.seed, seconds=chosen.seconds, rate=chosen.rate)
    print(report.summary(), flush=True)
    return not report.wrong


if __name__ == "__main__":
    main()
