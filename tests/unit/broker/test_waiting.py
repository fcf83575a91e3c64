"""Consumers that wait get what comes, whatever they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import proton
import pytest
from proton import ConnectionException
from proton.reactor import Selector
from proton.utils import BlockingConnection

from journal.amqp.settings import AmqpSettings
from journal.local.journal import LocalJournal
from journal.store.model import Message
from tests.unit.broker.conftest import TIMEOUT_S, Broker


class UnsureJournal(LocalJournal):
    """A journal whose node is slow to know that it is still active."""

    unsure = 0
    """How many looks find that it does not know."""

    @property
    def current(self) -> bool:
        if self.unsure:
            self.unsure -= 1
            return False
        return super().current


def broken_clock() -> int:
    raise RuntimeError("the clock is broken")


def test_a_consumer_that_cannot_be_served_keeps_no_other_one_from_its_messages(
    broker: Broker, client: BlockingConnection
) -> None:
    broker.server.now_ms = broken_clock
    unlucky = broker.connect()
    broker.server.now_ms = broker.node.clock
    first = unlucky.create_receiver("orders", credit=1)
    second = client.create_receiver("orders", credit=1)
    broker.store.send(Message("orders", b"1"), ["orders"])
    assert second.receive(TIMEOUT_S).body == b"1"
    with pytest.raises(ConnectionException, match="the clock is broken"):
        first.receive(TIMEOUT_S)


@pytest.fixture
def unsure(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"), kind=UnsureJournal)
    yield running
    running.close()


@pytest.mark.parametrize("options", [None, Selector("n = 1")], ids=["all", "selected"])
@pytest.mark.parametrize("looks", [1, 3, 8])
def test_whoever_was_refused_while_the_node_was_unsure_is_served_once_it_is_sure(
    unsure: Broker, looks: int, options: Selector | None
) -> None:
    client = unsure.connect()
    client.create_sender("orders").send(proton.Message(body="an order", properties={"n": 1}))
    journal = unsure.node.journal
    assert isinstance(journal, UnsureJournal)
    journal.unsure = looks
    assert client.create_receiver("orders", credit=1, options=options).receive(TIMEOUT_S).body == "an order"
    assert journal.unsure == 0
    client.close()
