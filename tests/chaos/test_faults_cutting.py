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
from tests.chaos.judging import SEED, assert_sound, bear, outlast
from tests.support.long_form import long_form

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800), long_form]


MEANWHILE = 500
REQUESTS = 10


def cuts(network: Network) -> list[FaultOfOne]:
    return [
        *(Partition(SEED, network, choose, way) for choose in (active_node, any_worker, any_broker) for way in Way),
        *(Isolation(SEED, network, choose) for choose in (active_node, any_worker, any_broker)),
    ]


def bad_networks(network: Network) -> list[FaultOfOne]:
    return [
        Lossy(SEED, network, active_node, 5),
        SlowLink(SEED, network, any_broker, "8mbit"),
        Delayed(SEED, network, active_node, 20),
    ]


def test_processes_go_on_while_one_is_cut_off_and_nothing_is_lost(tmp_path: Path) -> None:
    try:
        network = chaos_network()
    except NoNamespacesError as error:
        pytest.skip(str(error))
    with (
        network,
        network.host(OBSERVER).entered(),
        Cluster(tmp_path, seed=SEED, places=places(network), rate=1000) as cluster,
    ):
        for fault in cuts(network):
            outlast(cluster, fault, MEANWHILE)
            print(f"{fault} of {fault.target.name}")
        for fault in bad_networks(network):
            bear(cluster, fault, REQUESTS)
            print(f"{fault} of {fault.target.name}")
        assert_sound(cluster)
