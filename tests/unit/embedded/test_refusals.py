"""Starts of the embedded Kafka that are refused before a broker runs: files stay as they were, and the error says
why."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from journal.cli.kafka import app
from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.config import ClusterConfig
from journal.embedded.ports import choose_free_ports
from journal.embedded.process import write_pid_file
from journal.embedded.storage import broker_files, load_cluster, save_cluster, write_configuration
from journal.errors import EmbeddedKafkaError


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.embedded.cluster.find_java", lambda: Path("/bin/false"))
    monkeypatch.setattr("journal.embedded.cluster.get_kafka", lambda java, report: Path("/jars"))
    monkeypatch.setattr("journal.embedded.cluster.archive_option", lambda *of: [])


@pytest.fixture
def taken() -> Iterator[int]:
    """A port with a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterConfig:
    """The cluster of the directory; its brokers do not run."""
    port, controller = choose_free_ports(2, ())
    made = ClusterConfig("AAAAAAAAAAAAAAAAAAAAAA", (port,), (controller,))
    save_cluster(tmp_path, made)
    return made


def test_a_start_that_is_refused_for_a_taken_port_leaves_a_new_directory_without_a_cluster(
    tmp_path: Path, taken: int
) -> None:
    one, two = choose_free_ports(2, [taken])
    with pytest.raises(EmbeddedKafkaError, match=f"port {taken} of broker 2 is taken"):
        EmbeddedKafka(tmp_path, ports=[one, taken, two]).start()
    assert load_cluster(tmp_path) is None


def test_a_start_that_is_refused_for_a_taken_port_leaves_a_cluster_its_ports(
    tmp_path: Path, taken: int, cluster: ClusterConfig
) -> None:
    with pytest.raises(EmbeddedKafkaError, match=f"port {taken} of broker 1 is taken.*other ports"):
        EmbeddedKafka(tmp_path, ports=[taken]).start()
    assert load_cluster(tmp_path) == cluster


def test_a_controllers_port_that_is_taken_is_not_said_to_be_one_that_can_be_chosen(tmp_path: Path, taken: int) -> None:
    save_cluster(tmp_path, ClusterConfig("AAAAAAAAAAAAAAAAAAAAAA", choose_free_ports(1, [taken]), (taken,)))
    with pytest.raises(EmbeddedKafkaError, match=f"port {taken} of broker 1 is taken.*controller") as refused:
        EmbeddedKafka(tmp_path).start()
    assert "choose" not in str(refused.value)


def test_properties_for_a_cluster_that_runs_without_them_are_refused(tmp_path: Path, cluster: ClusterConfig) -> None:
    write_configuration(broker_files(tmp_path, 1), cluster, 1, {"num.io.threads": "7"})
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as broker:
        write_pid_file(broker_files(tmp_path, 1).pid_file, broker.pid)
        with pytest.raises(EmbeddedKafkaError, match=r"runs without num\.io\.threads=8: stop it before"):
            EmbeddedKafka(tmp_path, properties={"num.io.threads": "8"}).start()
        with pytest.raises(EmbeddedKafkaError, match="did not answer"):  # it is no broker
            EmbeddedKafka(tmp_path, properties={"num.io.threads": "7"}, start_timeout_s=0.0).start()
        assert broker.poll() is None
        broker.kill()


def test_what_the_disk_refuses_is_an_error_that_names_the_directory(tmp_path: Path, cluster: ClusterConfig) -> None:
    (tmp_path / "cluster.json.part").mkdir()
    with pytest.raises(EmbeddedKafkaError, match=f"{tmp_path} cannot be used .*Is a directory"):
        EmbeddedKafka(tmp_path).start()


def test_a_request_for_no_brokers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match="0 brokers"):
        EmbeddedKafka(tmp_path, brokers=0)
    with pytest.raises(EmbeddedKafkaError, match="0 brokers"):
        EmbeddedKafka(tmp_path, ports=[])


@pytest.mark.parametrize(
    "wrong",
    [
        ["--brokers", "0"],
        ["--brokers", "2", "--ports", "20001"],
        ["--ports", "65536"],
        ["--ports", ""],
        ["-p", "log.dirs=/elsewhere"],
    ],
)
def test_a_command_line_that_can_never_be_right_ends_with_2(tmp_path: Path, wrong: list[str]) -> None:
    assert CliRunner().invoke(app, ["start", "--dir", str(tmp_path), *wrong]).exit_code == 2
    assert load_cluster(tmp_path) is None
