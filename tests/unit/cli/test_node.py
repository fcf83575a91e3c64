"""`kafka-journal node` before it serves: who has its name, and what it says while Kafka does not answer."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from journal.cli.control_socket.client import find_node
from journal.cli.control_socket.paths import OwnSocket, socket_path
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
