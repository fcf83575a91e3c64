"""The cluster's description and the brokers' properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.embedded.config import (
    ClusterConfig,
    broker_properties,
    check_request,
    parse_cluster,
    parse_properties,
    render_properties,
    voter_count,
)
from journal.errors import EmbeddedKafkaError

FILE = Path("/data/cluster.json")
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
LONE = ClusterConfig("AAAAAAAAAAAAAAAAAAAAAA", (20001,), (20011,))
THREE = ClusterConfig("AAAAAAAAAAAAAAAAAAAAAA", (20001, 20002, 20003), (20011, 20012, 20013))
AWAY = ClusterConfig("AAAAAAAAAAAAAAAAAAAAAA", (20001, 20002, 20003), (20011, 20012, 20013), HOSTS)


@pytest.mark.parametrize("cluster", [LONE, THREE, AWAY])
def test_a_cluster_is_read_back_as_it_was_written(cluster: ClusterConfig) -> None:
    assert parse_cluster(cluster.to_json(), FILE) == cluster


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        LONE.to_json().replace('"format": 1', '"format": 2'),
        '{"format": 1, "cluster_id": "x"}',
        '{"format": 1, "cluster_id": "x", "ports": [1, 2, 3], "controller_ports": [4]}',
        '{"format": 1, "cluster_id": "x", "ports": ["a"], "controller_ports": [4]}',
        '{"format": 1, "cluster_id": "x", "ports": [1], "controller_ports": [4], "hosts": ["a", "b"]}',
    ],
)
def test_a_cluster_file_with_other_content_is_refused_and_the_error_names_its_path(text: str) -> None:
    with pytest.raises(EmbeddedKafkaError, match=r"/data/cluster\.json does not describe a cluster"):
        parse_cluster(text, FILE)


def test_a_cluster_of_three_or_more_survives_the_loss_of_one_controller() -> None:
    assert [voter_count(brokers) for brokers in (1, 2, 3, 5)] == [1, 1, 3, 3]


def test_bootstrap_servers_name_every_broker_on_the_loopback_interface() -> None:
    assert THREE.bootstrap_servers == "127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003"


def test_brokers_of_several_hosts_listen_on_their_own_and_find_each_other() -> None:
    assert AWAY.bootstrap_servers == "10.0.0.1:20001,10.0.0.2:20002,10.0.0.3:20003"
    properties = broker_properties(AWAY, 2, Path("/data"), {})
    assert properties["listeners"] == "PLAINTEXT://10.0.0.2:20002,CONTROLLER://10.0.0.2:20012"
    assert properties["advertised.listeners"] == "PLAINTEXT://10.0.0.2:20002"
    assert properties["controller.quorum.voters"] == "1@10.0.0.1:20011,2@10.0.0.2:20012,3@10.0.0.3:20013"


def test_each_broker_has_a_host_or_none_has() -> None:
    check_request(3, None, {}, HOSTS)
    with pytest.raises(EmbeddedKafkaError, match="give each one"):
        check_request(2, None, {}, HOSTS)


def test_a_lone_broker_is_its_own_controller_and_replicates_nothing() -> None:
    properties = broker_properties(LONE, 1, Path("/data"), {})
    assert properties["process.roles"] == "broker,controller"
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20011"
    assert properties["transaction.state.log.replication.factor"] == "1"
    assert properties["transaction.state.log.min.isr"] == "1"


def test_three_brokers_replicate_three_times_and_write_while_one_is_gone() -> None:
    properties = broker_properties(THREE, 2, Path("/data"), {})
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:20011,2@127.0.0.1:20012,3@127.0.0.1:20013"
    assert properties["transaction.state.log.replication.factor"] == "3"
    assert properties["min.insync.replicas"] == properties["transaction.state.log.min.isr"] == "2"


def test_the_second_of_two_brokers_is_no_controller() -> None:
    two = ClusterConfig("A", (20001, 20002), (20011,))
    assert broker_properties(two, 2, Path("/data"), {})["process.roles"] == "broker"
    assert two.ports_of(1) == (20001, 20011)
    assert two.ports_of(2) == (20002,)


def test_a_callers_property_overrides_ours() -> None:
    assert broker_properties(LONE, 1, Path("/data"), {"num.io.threads": "7"})["num.io.threads"] == "7"


@pytest.mark.parametrize(
    ("brokers", "ports", "properties", "named"),
    [
        (0, None, {}, "0 brokers"),
        (10, None, {}, "10 brokers"),
        (2, [20001], {}, "give each its own"),
        (2, [20001, 20001], {}, "give each its own"),
        (1, [65536], {}, "between 1 and 65535"),
        (1, None, {"log.dirs": "/x"}, "log.dirs: set by the embedded Kafka"),
        (1, None, {"a b": "c"}, "not a line of a properties file"),
        (1, None, {"a": "b\nc=d"}, "not a line of a properties file"),
    ],
)
def test_an_impossible_request_is_refused(
    brokers: int, ports: list[int] | None, properties: dict[str, str], named: str
) -> None:
    with pytest.raises(EmbeddedKafkaError, match=named):
        check_request(brokers, ports, properties)


def test_properties_files_escape_what_java_would_read_otherwise() -> None:
    assert render_properties({"log.dirs": "C:\\ä𝄞"}) == "log.dirs=C:\\\\\\u00e4\\ud834\\udd1e\n"


def test_kafkas_own_properties_files_are_read() -> None:
    assert parse_properties("#\n#Sat Nov 21\nnode.id=1\ncluster.id = abc\n") == {"node.id": "1", "cluster.id": "abc"}
