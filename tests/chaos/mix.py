"""The random mix: every fault that this machine lets us inject, each once and then at random, as the seed decides.

Two have tests of their own only: topics that are made anew are another journal, and a standby that is away for longer
than tombstones are kept needs a table that is compacted at once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.crash_points import ACTIVATION_POINTS, CHECKPOINT_POINTS
from tests.chaos.ending import MachineEnding, matrix
from tests.chaos.faults import disks
from tests.chaos.faults.anew import TableMadeAnew
from tests.chaos.faults.crashing import CrashInActivation, CrashInCheckpoint
from tests.chaos.faults.cutting import Delayed, Isolation, Lossy, Partition, SlowLink, Way
from tests.chaos.faults.disks import DamagedCopy, FullDisk
from tests.chaos.faults.fault import Choice, Fault, active_node, any_broker, any_node, any_worker
from tests.chaos.faults.network import Network
from tests.chaos.faults.pausing import IdlePause, Pause, PauseInTransaction
from tests.chaos.processes import Process
from tests.chaos.report import Report
from tests.chaos.run import Plan, run
from tests.chaos.stage import stage

log = logging.getLogger(__name__)


def mixed_run(directory: Path, out: Path, *, seed: int, seconds: float, rate: int) -> Report:
    """One cluster for the whole time; what the machine does not allow is left out, and said."""
    with stage(directory, seed=seed, rate=rate) as on:
        for what, why in on.lacks.items():
            log.warning("no faults of the %s: %s", what, why)
        faults = local_faults(seed)
        if on.network is not None:
            faults += network_faults(seed, on.network)
        if on.small_disks:
            faults.append(FullDisk(seed, _one_of(on.small_disks)))
        plan = Plan("mix", faults, at_random=True, seconds=seconds, hold_s=(0.2, 10.0), lacks=on.lacks)
        return run(on.cluster, plan, out).report


def local_faults(seed: int) -> list[Fault]:
    """Those that need nothing of the machine but signals and files."""
    return [
        *matrix(seed),
        MachineEnding(seed),
        Pause(seed, active_node, "pause active node"),
        IdlePause(seed),
        Pause(seed, any_broker, "pause broker"),
        Pause(seed, any_worker, "pause worker"),
        PauseInTransaction(seed),
        DamagedCopy(seed, any_node, disks.everything_deleted, "node's copy deleted"),
        DamagedCopy(seed, any_worker, disks.everything_deleted, "worker's copy deleted"),
        DamagedCopy(seed, any_node, disks.tables_flipped, "rows of a node's copy flipped"),
        DamagedCopy(seed, any_worker, disks.tables_flipped, "rows of a worker's copy flipped"),
        DamagedCopy(seed, any_node, disks.some_files_deleted, "files of a node's copy deleted"),
        DamagedCopy(seed, any_worker, disks.some_files_flipped, "files of a worker's copy flipped"),
        DamagedCopy(seed, any_node, disks.some_files_truncated, "files of a node's copy truncated"),
        TableMadeAnew(seed),
        *(CrashInActivation(seed, point) for point in ACTIVATION_POINTS),
        *(CrashInCheckpoint(seed, point) for point in CHECKPOINT_POINTS),
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
