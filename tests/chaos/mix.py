"""The random mix: every fault that this machine lets us inject, in an order that the seed decides."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.ending import matrix
from tests.chaos.faults import disks
from tests.chaos.faults.cutting import (
    OBSERVER,
    Delayed,
    Isolation,
    Lossy,
    Partition,
    SlowLink,
    Way,
    chaos_network,
    places,
)
from tests.chaos.faults.disks import DamagedCopy, FullDisk, NoDiskError, small_disk
from tests.chaos.faults.fault import Choice, Fault, active_node, any_broker, any_node, any_worker
from tests.chaos.faults.namespaces import NoNamespacesError
from tests.chaos.faults.network import Network
from tests.chaos.faults.pausing import Pause, PauseInTransaction
from tests.chaos.processes import Process
from tests.chaos.report import Report
from tests.chaos.run import Plan, run

log = logging.getLogger(__name__)

SMALL_DISKS = ("node-2", "worker-2")
SMALL_DISK_MB = 128


def mixed_run(directory: Path, out: Path, *, seed: int, seconds: float, rate: int) -> Report:
    """One cluster for the whole time; what the machine does not allow is left out, and said."""
    with ExitStack() as stack:
        faults = local_faults(seed)
        placed = None
        try:
            network = stack.enter_context(chaos_network())
            stack.enter_context(network.host(OBSERVER).entered())
            placed = places(network)
            faults += network_faults(seed, network)
        except NoNamespacesError as error:
            log.warning("no faults of the network: %s", error)
        try:
            for name in SMALL_DISKS:
                stack.enter_context(small_disk(directory / name / "data", SMALL_DISK_MB))
            faults.append(FullDisk(seed, _one_of(SMALL_DISKS)))
        except NoDiskError as error:
            log.warning("no full disks: %s", error)
        cluster = stack.enter_context(Cluster(directory, seed=seed, rate=rate, places=placed))
        plan = Plan("mix", faults, at_random=True, seconds=seconds, hold_s=(0.2, 10.0))
        return run(cluster, plan, out).report


def local_faults(seed: int) -> list[Fault]:
    """Those that need nothing of the machine but signals and files."""
    return [
        *matrix(seed),
        Pause(seed, active_node, "pause active node"),
        Pause(seed, any_broker, "pause broker"),
        Pause(seed, any_worker, "pause worker"),
        PauseInTransaction(seed),
        DamagedCopy(seed, any_node, disks.everything_deleted, "node's copy deleted"),
        DamagedCopy(seed, any_worker, disks.everything_deleted, "worker's copy deleted"),
        DamagedCopy(seed, any_node, disks.some_files_deleted, "files of a node's copy deleted"),
        DamagedCopy(seed, any_worker, disks.some_files_flipped, "files of a worker's copy flipped"),
        DamagedCopy(seed, any_node, disks.some_files_truncated, "files of a node's copy truncated"),
    ]


def network_faults(seed: int, network: Network) -> list[Fault]:
    """Every kind between every kind of process and the cluster."""
    faults: list[Fault] = []
    chosen: dict[str, Choice] = {"active node": active_node, "broker": any_broker, "worker": any_worker}
    for what, choose in chosen.items():
        faults += [Partition(seed, network, choose, way, f"partition {what} {way.value}") for way in Way]
        faults.append(Lossy(seed, network, choose, 10, f"loss at {what}"))
    faults.append(Isolation(seed, network, any_broker, "isolate broker"))
    faults.append(SlowLink(seed, network, active_node, "2mbit", "slow active node"))
    faults.append(SlowLink(seed, network, any_broker, "8mbit", "slow broker"))
    faults.append(Delayed(seed, network, active_node, 50, "delay active node"))
    return faults


def _one_of(names: Sequence[str]) -> Choice:
    def choose(cluster: Cluster, chance: random.Random) -> Process:
        return cluster.find(chance.choice(names))

    return choose
