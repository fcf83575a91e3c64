"""Ctrl-C ends a worker, and everything that `up` started, cleanly."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import proton
import psutil
import pytest
from proton.utils import BlockingConnection

from journal.kafka.clients import KafkaClients
from journal.topics.names import worker_group
from tests.support.judgement import made_journal
from tests.support.processes.child import DEADLINE_S
from tests.support.processes.command import command_env
from tests.support.processes.terminal import Terminal
from tests.support.stream_apps import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_a_worker_that_ctrl_c_ends_leaves_its_group(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, 2, tmp_path / "made")
    env = command_env(bootstrap, settings.journal, tmp_path)
    with Terminal("worker", env=env, log=tmp_path / "log") as worker:
        worker.wait_for_log("reading from")
        children = worker.children()
        assert worker.ctrl_c() == 0, worker.log()
        assert "Traceback" not in worker.log()
        assert not any(child.is_running() for child in children)
    assert KafkaClients(bootstrap).cluster().group_members(worker_group(settings.journal), DEADLINE_S) == []


def test_up_serves_clients_and_everything_that_it_started_is_gone_after_ctrl_c(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_JOURNAL_BOOTSTRAP")}
    env |= {"KAFKA_JOURNAL_DIRECTORY": str(tmp_path / "state")}
    address = f"127.0.0.1:{free_port()}"
    with Terminal("up", "--dir", str(tmp_path / "kafka"), "--amqp", address, env=env, log=tmp_path / "log") as up:
        up.wait_for_log("AMQP clients are served")
        client = BlockingConnection(f"amqp://{address}", timeout=DEADLINE_S, allowed_mechs="ANONYMOUS")
        client.create_sender("orders").send(proton.Message(body="sent to a whole broker"))
        assert client.create_receiver("orders").receive(DEADLINE_S).body == "sent to a whole broker"
        client.close()
        children = up.children()
        listening = {
            connection.laddr.port
            for child in [*children, psutil.Process(up.pid)]
            for connection in child.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert len(listening) > 1, "Kafka and the node"
        assert up.ctrl_c() == 0, up.log()
        assert "Traceback" not in up.log()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert not alive
    for port in listening:
        with socket.socket() as one:
            assert one.connect_ex(("127.0.0.1", port)) != 0
