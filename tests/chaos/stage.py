"""What most faults need: a cluster in a network of its own, some of its local copies on small disks.

What this machine does not allow is left out, and `Stage.lacks` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.faults.cutting import OBSERVER, chaos_network, places
from tests.chaos.faults.disks import NoDiskError, small_disk
from tests.chaos.faults.namespaces import NoNamespacesError
from tests.chaos.faults.network import Network
from tests.chaos.processes import Place

SMALL_DISKS = ("node-2", "worker-2")
SMALL_DISK_MB = 128


@dataclass(frozen=True)
class Stage:
    """A cluster that runs, and where its faults are made. Who made it is on the network's host for observers."""

    cluster: Cluster
    network: Network | None
    small_disks: tuple[str, ...]
    """Processes whose local copies are on a disk that may be filled."""
    places: dict[str, Place] | None
    lacks: dict[str, str]
    """What this machine has not, "network" or "disks", and the reason."""


@contextmanager
def stage(directory: Path, *, seed: int, rate: int) -> Iterator[Stage]:
    """One cluster on brokers of its own; all of it ends with the `with`, at once."""
    network, placed, lacks = None, None, {}
    small_disks: tuple[str, ...] = ()
    with ExitStack() as stack:
        try:
            network = stack.enter_context(chaos_network())
            stack.enter_context(network.host(OBSERVER).entered())
            placed = places(network)
        except NoNamespacesError as error:
            lacks["network"] = str(error)
        try:
            for name in SMALL_DISKS:
                stack.enter_context(small_disk(directory / name / "data", SMALL_DISK_MB))
            small_disks = SMALL_DISKS
        except NoDiskError as error:
            lacks["disks"] = str(error)
        cluster = stack.enter_context(Cluster(directory, seed=seed, rate=rate, places=placed))
        yield Stage(cluster, network, small_disks, placed, lacks)
