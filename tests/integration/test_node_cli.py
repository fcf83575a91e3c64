"""`kafka-journal node` as people run it: two commands are a journal with a store, a standby and a worker each."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import proton
import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]  # it re-exports this without saying so
from proton.utils import BlockingConnection

from tests.support.processes.command import new_journal
from tests.support.processes.machine import DEADLINE_S, Machine, node, wait_for_end
from tests.support.stream_apps import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ENV = {"KAFKA_JOURNAL_FENCE_CHECK_MS": "5000", "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "10000"}
"""A busy machine is not taken for a dead node, and one that commits late still answers."""

PREFIX = "team-a."


def names_in_kafka(bootstrap: str, journal: str) -> set[str]:
    """Topics and groups that have the journal's name in theirs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    groups = [group.group_id for group in admin.list_consumer_groups().result(DEADLINE_S).valid]
    return {name for name in (*admin.list_topics(timeout=DEADLINE_S).topics, *groups) if journal in name}


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def test_two_commands_are_a_highly_available_store(bootstrap: str, tmp_path: Path) -> None:
    """The journal has a prefix, and nothing that it makes in Kafka lacks it."""
    env = ENV | {"KAFKA_JOURNAL_TOPIC_PREFIX": PREFIX}
    web = {name: f"127.0.0.1:{free_port()}" for name in ("one", "two")}
    journal = new_journal(bootstrap, 2, directory=tmp_path / "command", env=env)
    with ExitStack() as ending:

        def start(name: str) -> Machine:
            machine = Machine(bootstrap, journal, tmp_path, name, env | {"KAFKA_JOURNAL_WEB": web[name]})
            ending.callback(machine.process.kill)
            return machine

        one = start("one")
        one.wait_for_status("active", lambda status: node(status, "one")["role"] == "active")
        one.run("send", "orders", "hello", "--create", "--count", "20", "--node")
        two = start("two")
        two.wait_for_status("fit", lambda status: bool(node(status, "two")["fit"]))

        for name, role in (("one", "active"), ("two", "standby")):
            metrics, ready = (fetched(f"http://{web[name]}/{page}") for page in ("metrics", "ready"))
            assert f'kafka_journal_node_role{{role="{role}"}} 1.0\n' in metrics
            assert json.loads(ready)["ready"]
            messages = 'kafka_journal_queue_messages{queue="orders",state="ready"} 20.0\n'
            assert (messages in metrics) == (name == "one")

        # what is acknowledged stays so, and what is not stays there, whoever serves it
        assert one.receive("orders", 5) == ["hello"] * 5
        worker = one.worker_pid()
        one.process.kill()
        status = two.wait_for_status("active", lambda status: node(status, "two")["role"] == "active")
        failover = node(status, "two")["last_failover"]
        assert failover["warm"]
        assert failover["total_ms"] >= failover["gate_ms"] > 0
        assert two.run("queues", "--node")[0]["depth"] == 15
        two.wait_for_status("gone", lambda status: bool(node(status, "one")["gone"]))
        # its worker, left alone, gave back what the other node then waited for, and ends
        wait_for_end(worker)
        assert one.said("stopped; everything it had read is checkpointed")

        # a worker that dies is started again
        worker = two.worker_pid()
        os.kill(worker, signal.SIGKILL)
        two.run("send", "orders", "again", "--node")
        two.wait_for_status("with a worker", lambda status: two.worker_pid() != worker and bool(status["workers"]))

        one = start("one")
        one.wait_for_status("fit", lambda status: bool(node(status, "one")["fit"]))
        assert two.run("node", "hand-over")["node"] == "one"
        assert one.run("queues", "--node")[0]["depth"] == 16

        # one that ends hands over, and its worker goes on until the other is active
        two.wait_for_status("fit", lambda status: bool(node(status, "two")["fit"]))
        worker = one.worker_pid()
        one.wait_for_worker()
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(DEADLINE_S) == 0
        wait_for_end(worker)
        two.wait_for_status("active again", lambda status: node(status, "two")["role"] == "active")
        assert two.said("node two is active") < one.said("stopped; everything it had read is checkpointed")
        assert node(two.run("status"), "two")["role"] == "active"
        assert two.run("queues", "--node")[0]["depth"] == 16
        two.process.send_signal(signal.SIGTERM)
        assert two.process.wait(DEADLINE_S) == 0
        assert two.run("status")["nodes"] == []
        assert one.roles.read_text().split() == ["standby", "active", "standby", "active", "stopping"]
        assert two.roles.read_text().split() == ["standby", "active", "stopping", "active", "stopping"]
        assert two.run("status")["journal"] == PREFIX + journal
    assert names_in_kafka(bootstrap, journal) == {
        *(f"{PREFIX}{journal}.{topic}" for topic in ("wal", "table", "control")),
        *(f"{PREFIX}kafka-journal.{journal}.{members}" for members in ("worker", "node")),
    }


def test_a_client_of_amqp_has_all_that_was_accepted_after_its_node_was_killed(bootstrap: str, tmp_path: Path) -> None:
    journal = new_journal(bootstrap, 2, directory=tmp_path / "command", env=ENV)
    with ExitStack() as ending:

        def start(name: str) -> tuple[Machine, str]:
            address = f"127.0.0.1:{free_port()}"
            machine = Machine(bootstrap, journal, tmp_path, name, ENV, amqp=address)
            ending.callback(machine.process.kill)
            return machine, f"amqp://{address}"

        def connect(url: str) -> BlockingConnection:
            return BlockingConnection(url, timeout=DEADLINE_S, allowed_mechs="ANONYMOUS")

        one, at_one = start("one")
        one.wait_for_status("active", lambda status: node(status, "one")["role"] == "active")
        client = connect(at_one)
        sender = client.create_sender("orders")
        for number in range(20):
            sender.send(proton.Message(body=number))
        receiver = client.create_receiver("orders", credit=5)
        for number in range(5):
            assert receiver.receive(DEADLINE_S).body == number
            receiver.accept()
        client.close()
        wait_until(lambda: one.run("queues", "--node")[0]["depth"] == 15)
        two, at_two = start("two")
        with pytest.raises(proton.ConnectionException):
            connect(at_two)  # a standby does not listen
        two.wait_for_status("fit", lambda status: bool(node(status, "two")["fit"]))
        holding = connect(at_one).create_receiver("orders", credit=3)
        assert holding.receive(DEADLINE_S).body == 5

        one.process.kill()
        two.wait_for_status("active", lambda status: node(status, "two")["role"] == "active")
        client = connect(at_two)
        receiver = client.create_receiver("orders", credit=15)
        found = [receiver.receive(DEADLINE_S) for _ in range(15)]
        assert [each.body for each in found] == list(range(5, 20))
        assert not any(each.first_acquirer for each in found), "each may have been delivered before"
        client.close()


def test_a_node_that_logs_json_and_more_has_its_worker_do_the_same(bootstrap: str, tmp_path: Path) -> None:
    journal = new_journal(bootstrap, 1, directory=tmp_path / "command", env=ENV)
    one = Machine(bootstrap, journal, tmp_path, "one", ENV, verbose=True, as_json=True)
    try:
        one.wait_for_status("active", lambda status: node(status, "one")["role"] == "active")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(DEADLINE_S) == 0
    finally:
        one.process.kill()
    logged = [json.loads(line) for line in one.log_file.read_text().splitlines()]
    debugged = {line["logger"].partition(".")[0] for line in logged if line["level"] == "DEBUG"}
    assert {"loaders", "streams"} <= debugged, "the node's own, and its worker's"
