"""Every kind of fault, once, on one cluster; what it left is judged in the end.

In order: a later test goes on with what an earlier one left. The long forms are in the other files, and in
`python -m tests.chaos`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.crash_points import ACTIVATION_POINTS, CHECKPOINT_POINTS
from tests.chaos.ending import Ending, MachineEnding
from tests.chaos.faults import disks
from tests.chaos.faults.anew import TableMadeAnew, make_topics_anew
from tests.chaos.faults.crashing import CrashInActivation, CrashInCheckpoint
from tests.chaos.faults.cutting import Delayed, Isolation, Lossy, Partition, SlowLink, Way
from tests.chaos.faults.disks import DamagedCopy, FullDisk
from tests.chaos.faults.fault import FaultOfOne, active_node, any_broker, any_node, any_worker, named
from tests.chaos.faults.network import Network
from tests.chaos.faults.pausing import IdlePause, Pause, PauseInTransaction
from tests.chaos.judging import SEED, assert_sound, bear, outlast
from tests.chaos.processes import NodeProcess, WorkerProcess, wait_for
from tests.chaos.smoke import survive_kills
from tests.chaos.stage import Stage, stage
from tests.support.long_form import long_form

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

RATE = 500
MEANWHILE = 200
"""Operations that the others acknowledge before a fault is healed, and all of them after it."""
REQUESTS = 3
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    with stage(tmp_path_factory.mktemp("faults"), seed=SEED, rate=RATE) as made:
        yield made


@pytest.fixture
def cluster(scene: Stage) -> Iterator[Cluster]:
    """Everything runs, also what an earlier test that failed has left dead. Nothing may end by itself."""
    scene.cluster.mend()
    scene.cluster.wait_for_acknowledgements(1)
    scene.cluster.take_ended_by_themselves()
    yield scene.cluster
    assert scene.cluster.take_ended_by_themselves() == []


@pytest.fixture
def network(scene: Stage) -> Iterator[Network]:
    """Whole again when a test ends, also one that failed."""
    if scene.network is None:
        pytest.skip(scene.lacks["network"])
    yield scene.network
    scene.network.heal()


def survive(cluster: Cluster, fault: FaultOfOne) -> None:
    """The others go on, and so do all."""
    fault.inject(cluster)
    cluster.wait_for_acknowledgements(MEANWHILE)
    fault.heal(cluster)
    cluster.wait_for_acknowledgements(MEANWHILE)


def succeed(cluster: Cluster, fault: FaultOfOne) -> NodeProcess:
    """The node that it is for is active no more: another goes on. Gives that node."""
    fault.inject(cluster)
    left = fault.target
    assert isinstance(left, NodeProcess)
    cluster.wait_until_left_out(left)
    fault.heal(cluster)
    cluster.wait_for_acknowledgements(MEANWHILE)
    return left


# ---- processes that end ------------------------------------------------------------------------------------------


def test_a_broker_ends_in_order(cluster: Cluster) -> None:
    survive(cluster, Ending("stop broker", SEED, any_broker, clean=True))


def test_the_active_node_ends_in_order(cluster: Cluster) -> None:
    succeed(cluster, Ending("stop node", SEED, active_node, clean=True))


def test_a_worker_ends_in_order(cluster: Cluster) -> None:
    survive(cluster, Ending("stop worker", SEED, any_worker, clean=True))


def test_a_machine_ends_with_its_node_and_its_worker(cluster: Cluster) -> None:
    succeed(cluster, MachineEnding(SEED))


# ---- processes that stop for a while -----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Pause(SEED, active_node), IdlePause(SEED)], ids=["busy", "idle"])
def test_a_zombie_is_fenced_and_a_standby_again(cluster: Cluster, fault: Pause) -> None:
    fault.inject(cluster)
    zombie = fault.target
    assert isinstance(zombie, NodeProcess)
    before = zombie.fenced
    cluster.wait_until_left_out(zombie)
    fault.heal(cluster)
    wait_for(lambda: zombie.role == "standby", f"{zombie.name} as a standby")
    assert zombie.fenced == before + 1


def test_a_worker_stops_inside_its_transaction_and_is_fenced(cluster: Cluster) -> None:
    """The worker goes on when its shards are another's, gives them up, and gets its share again."""
    fault = PauseInTransaction(SEED)
    fault.inject(cluster)
    worker = fault.target
    assert isinstance(worker, WorkerProcess)
    before = len(worker.log())
    cluster.wait_for_acknowledgements(MEANWHILE)
    fault.heal(cluster)
    wait_for(lambda: "gave back" in worker.log()[before:], f"{worker.name} to give back its shards")
    cluster.wait_for_shares()


def test_a_cluster_survives_a_broker_that_stops_for_a_while(cluster: Cluster) -> None:
    survive(cluster, Pause(SEED, any_broker))


# ---- the network -------------------------------------------------------------------------------------------------


CUTS: dict[str, Callable[[Network], FaultOfOne]] = {
    "the active node is cut off": lambda network: Partition(SEED, network, active_node, Way.BOTH),
    "the active node hears no more": lambda network: Partition(SEED, network, active_node, Way.IN),
    "a worker is heard no more": lambda network: Partition(SEED, network, any_worker, Way.OUT),
    "a broker is cut off from the others": lambda network: Partition(SEED, network, any_broker, Way.BOTH),
    "a broker is cut off from all": lambda network: Isolation(SEED, network, any_broker),
}


@pytest.mark.parametrize("make", CUTS.values(), ids=CUTS)
def test_processes_go_on_without_one_that_is_cut_off(
    cluster: Cluster, network: Network, make: Callable[[Network], FaultOfOne]
) -> None:
    outlast(cluster, make(network), MEANWHILE)


BAD_NETWORKS: dict[str, Callable[[Network], FaultOfOne]] = {
    "packets of the active node are lost": lambda network: Lossy(SEED, network, active_node, 5),
    "a broker's link is slow": lambda network: SlowLink(SEED, network, any_broker, "8mbit"),
    "the active node hears late": lambda network: Delayed(SEED, network, active_node, 20),
}


@pytest.mark.parametrize("make", BAD_NETWORKS.values(), ids=BAD_NETWORKS)
def test_a_bad_network_stops_no_process(
    cluster: Cluster, network: Network, make: Callable[[Network], FaultOfOne]
) -> None:
    bear(cluster, make(network), REQUESTS)


# ---- disks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node", "worker"])
def test_a_process_whose_disk_is_full_goes_on_when_there_is_room(scene: Stage, cluster: Cluster, kind: str) -> None:
    name = next((name for name in scene.small_disks if name.startswith(kind)), None)
    if name is None:
        pytest.skip(scene.lacks["disks"])
    fault = FullDisk(SEED, named(name))
    fault.inject(cluster)
    wait_for(fault.is_met, f"a full disk of {name}")
    fault.heal(cluster)
    cluster.wait_for_acknowledgements(MEANWHILE)


DAMAGES = {
    "a node's rows are flipped": (any_node, disks.tables_flipped),
    "a node's files are deleted": (any_node, disks.everything_deleted),
    "a worker's files are flipped": (any_worker, disks.some_files_flipped),
    "some of a worker's files are deleted": (any_worker, disks.some_files_deleted),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_built_anew(cluster: Cluster, damage: str) -> None:
    fault = DamagedCopy(SEED, *DAMAGES[damage])
    fault.inject(cluster)
    fault.target.start(ready=True)
    cluster.wait_for_acknowledgements(MEANWHILE)
    assert fault.target.running, fault.done


# ---- named points ------------------------------------------------------------------------------------------------


SHORT_POINTS = ("marker sent", "loaded")
"""Each costs a start of both nodes: the others have the long form."""


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in SHORT_POINTS else long_form) for point in ACTIVATION_POINTS]
)
def test_a_node_crashes_in_its_activation(cluster: Cluster, point: str) -> None:
    survive_healed(cluster, CrashInActivation(SEED, point, clean=True))


@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
def test_a_worker_crashes_in_a_checkpoint(cluster: Cluster, point: str) -> None:
    survive_healed(cluster, CrashInCheckpoint(SEED, point))


def survive_healed(cluster: Cluster, fault: FaultOfOne) -> None:
    """With two nodes dead, nobody goes on meanwhile."""
    fault.inject(cluster)
    fault.heal(cluster)
    cluster.wait_for_acknowledgements(MEANWHILE)


# ---- the judgement -----------------------------------------------------------------------------------------------


def test_nothing_is_lost_doubled_or_reordered_by_faults_and_kills_of_one_cluster(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The smoke test ends it: kills, whose run judges all, and leaves a picture and a history."""
    report = survive_kills(cluster, tmp_path)
    assert (tmp_path / "smoke.png").read_bytes().startswith(PNG)
    told = json.loads((tmp_path / "smoke.json").read_text(encoding="utf-8"))
    injected = {injection["fault"] for injection in told["injections"]}
    assert injected == {"kill worker", "kill broker", "kill active node"}
    assert sum(told["rates"]) >= MEANWHILE
    assert {change["node"] for change in told["roles"]} == {node.name for node in cluster.nodes}
    assert told["acknowledged"] == report.acknowledged > 0


def test_topics_made_anew_behind_a_standbys_back_are_another_journal(scene: Stage, tmp_path: Path) -> None:
    with Cluster(tmp_path, seed=SEED, kafka=scene.cluster.kafka, places=scene.places, rate=RATE) as cluster:
        cluster.wait_for_acknowledgements(MEANWHILE)
        make_topics_anew(cluster)
        cluster.wait_for_acknowledgements(MEANWHILE)
        assert_sound(cluster)


@long_form
def test_a_table_made_anew_behind_a_standbys_back_is_filled_from_the_wal(scene: Stage, tmp_path: Path) -> None:
    """In short: `tests/integration/test_table_made_anew.py`."""
    with Cluster(tmp_path, seed=SEED, kafka=scene.cluster.kafka, places=scene.places, rate=RATE) as cluster:
        cluster.wait_for_acknowledgements(MEANWHILE)
        fault = TableMadeAnew(SEED)
        fault.inject(cluster)
        fault.heal(cluster)
        cluster.wait_for_acknowledgements(MEANWHILE)
        cluster.wait_for_active().kill()
        cluster.wait_for_acknowledgements(MEANWHILE)
        cluster.mend()
        assert_sound(cluster)
