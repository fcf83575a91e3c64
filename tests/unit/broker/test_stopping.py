"""How the broker stops where its node serves the journal no more: clients are told, and connect again elsewhere."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from proton import ConnectionException

from journal.amqp.settings import AmqpSettings
from journal.errors import FencedError
from journal.store.model import Message
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.test_subscriptions import connect, subscribe


@pytest.fixture
def fenced(tmp_path: Path) -> Broker:
    """A broker whose node another one fences during the test."""
    return Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"))


def fence(broker: Broker) -> None:
    broker.node.journal.require_core().step_down(FencedError("another node is active", epoch=2))


def test_all_clients_of_a_fenced_node_are_told_those_with_subscriptions_too(fenced: Broker) -> None:
    clients = [connect(fenced, name) for name in ("one", "two")]
    for each in clients:
        subscribe(each, "durable")
        subscribe(each, "shared", topic="news")
    fence(fenced)
    fenced.close()
    for each in clients:
        with pytest.raises(ConnectionException, match="the test has ended"):
            each.wait(lambda: False, timeout=TIMEOUT_S)


def test_a_server_that_has_ended_by_itself_can_be_stopped(fenced: Broker) -> None:
    client = fenced.connect()
    receiver = client.create_receiver("orders", credit=1)
    with fenced.node.blocked_writer():
        fenced.store.send(Message("orders", b"1"), ["orders"])
        fence(fenced)
    with pytest.raises(ConnectionException, match="another node is active"):
        receiver.receive(TIMEOUT_S)
    wait_until(lambda: all(each.name != "kafka-journal-amqp" for each in threading.enumerate()))
    fenced.close()
