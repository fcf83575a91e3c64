"""Nodes, workers and brokers that are cut off, or badly connected: the others go on, and nothing is lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
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
from tests.chaos.faults.fault import FaultOfOne, active_node, any_broker, any_worker
from tests.chaos.faults.namespaces import NoNamespacesError
from tests.chaos.faults.network import Network
from tests.chaos.judging import SEED, assert_sound, long_form

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800), long_form]


def faults(network: Network) -> list[FaultOfOne]:
    return [
        Partition(SEED, network, active_node, Way.BOTH),
        Partition(SEED, network, active_node, Way.IN),
        Partition(SEED, network, any_worker, Way.OUT),
        Isolation(SEED, network, any_broker),
        Lossy(SEED, network, active_node, 5),
        SlowLink(SEED, network, any_broker, "8mbit"),
        Delayed(SEED, network, active_node, 20),
    ]


def test_the_others_go_on_while_one_is_cut_off_and_nothing_is_lost(tmp_path: Path) -> None:
    try:
        network = chaos_network()
    except NoNamespacesError as error:
        pytest.skip(str(error))
    with (
        network,
        network.host(OBSERVER).entered(),
        Cluster(tmp_path, seed=SEED, places=places(network), rate=1000) as cluster,
    ):
        for fault in faults(network):
            cluster.wait_for_acknowledgements(200)
            epoch = cluster.wait_for_active().epoch
            fault.inject(cluster)
            print(f"{fault} of {fault.target.name}")
            cluster.wait_for_acknowledgements(500)
            if isinstance(fault, Partition) and fault.target.kind == "node":
                assert cluster.wait_for_active().epoch > epoch, "the others went on without it"
            fault.heal(cluster)
        assert_sound(cluster)
