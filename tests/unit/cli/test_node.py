"""`kafka-journal node` before it serves: who has its name, and what it says while Kafka does not answer."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from journal.cli.control_socket.client import find_node
from journal.cli.control_socket.paths import OwnSocket, socket_path
from journal.cli.main import app
from journal.cli.node.node import serve
from journal.config import Settings, load_settings
from journal.errors import NodeSocketError, NotActiveError
from tests.support.waiting import wait_until

LIMIT_S = 60.0


def unreachable(directory: Path, request_timeout_ms: int) -> Settings:
    """Settings of a node that cannot reach Kafka."""
    return load_settings(
        None,
        bootstrap_servers="127.0.0.1:1",
        journal="orders",
        node="one",
        directory=directory,
        request_timeout_ms=request_timeout_ms,
    )


def test_a_second_node_of_a_name_is_refused_before_it_does_anything(tmp_path: Path) -> None:
    settings, ran = unreachable(tmp_path, 100), tmp_path / "ran"
    worker = ["/bin/sh", "-c", f"touch {ran}; read _"]
    with (
        closing(OwnSocket(socket_path(settings, "one"))),
        pytest.raises(NodeSocketError, match="a node named one runs on this machine already"),
    ):
        serve(settings, worker, threading.Event())
    assert not ran.exists()


def test_a_node_that_waits_for_kafka_has_its_worker_and_says_that_it_is_starting(tmp_path: Path) -> None:
    settings, ran, ended = unreachable(tmp_path, 1000), tmp_path / "ran", tmp_path / "ended"
    worker = ["/bin/sh", "-c", f"trap 'touch {ended}; exit' TERM; touch {ran}; while :; do sleep 0.05; done"]
    stop = threading.Event()
    serving = threading.Thread(target=serve, args=(settings, worker, stop))
    serving.start()
    try:
        wait_until(lambda: ran.exists() and socket_path(settings, "one").exists())
        with find_node(settings, "") as client:
            assert client.status()["role"] == "starting"
            with pytest.raises(NotActiveError, match="node one of journal orders is starting, not active"):
                client.queues()
    finally:
        stop.set()
        serving.join(LIMIT_S)
    assert not serving.is_alive()
    assert ended.exists()


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        (["0.0.0.0:5672"], {}, "served without users and TLS"),
        (["[::]:5672"], {"USERS_FILE": "none.json"}, "served without TLS"),
        (["127.0.0.1:5672"], {"USERS_FILE": "none.json"}, "the file of users none.json cannot be read"),
        (["0.0.0.0:5672", "--insecure"], {"USERS_FILE": "none.json"}, "the file of users none.json cannot be read"),
        (["127.0.0.1:5672"], {"CERTIFICATE": "none.pem"}, "none.pem cannot be read for TLS"),
    ],
)
def test_a_node_whose_clients_are_not_kept_out_as_they_should_be_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], settings: dict[str, str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {f"KAFKA_JOURNAL_AMQP__SECURITY__{name}": value for name, value in settings.items()}
    arguments = ["node", "-j", "orders", "-b", "127.0.0.1:1", "--amqp", *options]
    ended = CliRunner().invoke(app, arguments, env={**env, "KAFKA_JOURNAL_DIRECTORY": str(tmp_path)})
    assert (ended.exit_code, says in " ".join(ended.stderr.split())) == (2, True), ended.stderr
