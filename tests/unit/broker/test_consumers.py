"""What becomes of the messages that a link holds, with a client that says more of them than proton does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from journal.amqp import ReceiverLink, events
from journal.amqp.handshake import SASL_OK
from journal.amqp.message_types import SourceTerminus, TargetTerminus
from journal.amqp.transport_types import SaslOutcomeFrame
from journal.store.model import Message, QueueConfig
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.security.test_login import EngineClient

E = TypeVar("E", bound=tuple[Any, ...])


class Receiving(EngineClient):
    """A client with one session, which gives credit and outcomes one by one."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        assert self.login("ANONYMOUS", b"") == SaslOutcomeFrame(SASL_OK)
        self.engine.open()
        self.next_of(events.ConnectionOpened)
        self.session = self.engine.session()
        self.session.begin()
        self.next_of(events.SessionBegan)

    def next_of(self, kind: type[E]) -> E:
        """The next event of a kind; those before it are dropped."""
        while not isinstance(event := self.next(), kind):
            pass
        return event

    def receiver(self, name: str, credit: int = 0) -> ReceiverLink:
        link = self.session.receiver(name)
        link.attach(SourceTerminus("orders"), TargetTerminus("here"))
        self.next_of(events.LinkAttached)
        if credit:
            link.flow(credit)
        return link

    def received(self) -> int:
        """The id of the next delivery."""
        return self.next_of(events.TransferReceived).delivery_id


@pytest.fixture
def client(broker: Broker) -> Iterator[Receiving]:
    broker.store.create_address("orders").wait(TIMEOUT_S)
    broker.store.create_queue(QueueConfig("orders", "orders")).wait(TIMEOUT_S)
    with Receiving(broker) as running:
        yield running


def send(broker: Broker, count: int) -> None:
    for number in range(count):
        broker.store.send(Message("orders", bytes([number])), ["orders"]).wait(TIMEOUT_S)


def test_a_link_that_goes_gives_back_nothing_of_another_of_its_name(broker: Broker, client: Receiving) -> None:
    send(broker, 2)
    first = client.receiver("same", credit=1)
    client.received()
    client.receiver("same", credit=1)
    client.received()
    assert broker.store.queue("orders").held == 2
    first.detach(closed=True)
    client.next_of(events.LinkDetached)
    assert broker.store.queue("orders").held == 1
