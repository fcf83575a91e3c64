"""Which brokers a command talks to, and what it says of addresses that will not do."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from journal.cli.common import Chosen
from journal.cli.main import app
from journal.embedded.config import ClusterConfig
from journal.embedded.process import write_pid_file

SERVERS = "127.0.0.1:20001"


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an embedded Kafka, whose only broker is taken to be this process."""
    for name in ("BOOTSTRAP_SERVERS", "JOURNAL"):
        monkeypatch.delenv(f"KAFKA_JOURNAL_{name}", raising=False)
    monkeypatch.setenv("KAFKA_JOURNAL_KAFKA_DIR", str(tmp_path))
    (tmp_path / "cluster.json").write_text(ClusterConfig("cluster", (20001,), (20002,)).to_json())
    pid_file = tmp_path / "broker-1" / "broker.pid"
    pid_file.parent.mkdir()
    write_pid_file(pid_file, os.getpid())
    return tmp_path


def test_a_command_without_brokers_uses_the_embedded_kafka_that_runs_and_says_so(
    embedded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Chosen().settings().bootstrap_servers == SERVERS
    (line,) = capsys.readouterr().err.splitlines()
    assert str(embedded) in line
    assert SERVERS in line


@pytest.mark.parametrize("given", ["option", "environment", "file"])
def test_brokers_that_are_named_are_used_whatever_runs(
    given: str, embedded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = embedded / "settings.toml"
    file.write_text('bootstrap_servers = "named:1"\n' if given == "file" else "")
    if given == "environment":
        monkeypatch.setenv("KAFKA_JOURNAL_BOOTSTRAP_SERVERS", "named:1")
    chosen = Chosen(bootstrap="named:1" if given == "option" else None, config=file)
    assert chosen.settings().bootstrap_servers == "named:1"
    assert capsys.readouterr().err == ""


def test_an_embedded_kafka_that_does_not_run_is_not_used(embedded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (embedded / "broker-1" / "broker.pid").unlink()
    assert Chosen().settings().bootstrap_servers == "127.0.0.1:9092"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("address", ["localhost", "localhost:9092, other:9092", "localhost:9092,", ""])
def test_an_address_that_is_none_is_refused_at_once_with_exit_code_2(address: str) -> None:
    ended = CliRunner().invoke(app, ["status", "-b", address])
    assert ended.exit_code == 2
    assert "bootstrap_servers" in ended.stderr
    assert "is not an address: expected host:port" in " ".join(ended.stderr.split())


@pytest.mark.parametrize("command", [["status"], ["send", "a", "b"]])
def test_an_address_at_which_nobody_listens_is_named_within_seconds(command: list[str], tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        began = time.monotonic()
        ended = CliRunner().invoke(
            app, [*command, "-b", address], env={"KAFKA_JOURNAL_DIRECTORY": str(tmp_path), "COLUMNS": "300"}
        )
    assert ended.exit_code == 1
    assert f"Kafka does not answer: {address}: connection refused" in ended.stderr
    assert time.monotonic() - began < 15.0, "the time-out of a request"


def test_up_says_at_once_that_its_port_is_in_use_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        ended = CliRunner().invoke(app, ["up", "--amqp", listen], env={"COLUMNS": "300"})
    assert ended.exit_code == 2
    assert f"cannot listen for AMQP on {listen}: Address already in use" in ended.stderr
    assert "--amqp HOST:PORT" in ended.stderr
