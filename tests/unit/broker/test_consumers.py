"""What becomes of the messages that a link holds, with a client that says more of them than proton does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from journal.amqp import ReceiverLink, events
from journal.amqp.handshake import SASL_OK
from journal.amqp.limits import EngineLimits
from journal.amqp.message_types import (
    AcceptedState,
    RejectedState,
    ReleasedState,
    SourceTerminus,
    State,
    TargetTerminus,
)
from journal.amqp.transport_types import SaslOutcomeFrame
from journal.store.model import Message, QueueConfig
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.security.test_login import EngineClient

E = TypeVar("E", bound=tuple[Any, ...])


class Receiving(EngineClient):
    """A client with one session, which gives credit and outcomes one by one."""

    def __init__(self, broker: Broker, limits: EngineLimits | None = None) -> None:
        super().__init__(broker, limits)
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

    def receiver(self, name: str, credit: int = 0, address: str = "orders") -> ReceiverLink:
        link = self.session.receiver(name)
        link.attach(SourceTerminus(address), TargetTerminus("here"))
        self.next_of(events.LinkAttached)
        if credit:
            link.flow(credit)
        return link

    def received(self) -> int:
        """The id of the next delivery."""
        return self.next_of(events.TransferReceived).delivery_id


@pytest.fixture
def orders(broker: Broker) -> Broker:
    """A broker with a queue."""
    broker.store.create_address("orders").wait(TIMEOUT_S)
    broker.store.create_queue(QueueConfig("orders", "orders")).wait(TIMEOUT_S)
    return broker


@pytest.fixture
def client(orders: Broker) -> Iterator[Receiving]:
    with Receiving(orders) as running:
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


def test_an_outcome_that_is_said_again_is_answered_once_and_changes_nothing(broker: Broker, client: Receiving) -> None:
    send(broker, 2)
    link = client.receiver("r", credit=2)
    first, second = client.received(), client.received()
    for _ in range(2):
        link.settle([first], AcceptedState(), settled=False)
    assert client.next_of(events.DispositionReceived).settled
    assert broker.store.queue("orders").held == 1
    link.settle([second], AcceptedState(), settled=False)
    assert client.next_of(events.DispositionReceived).deliveries == [second]


@pytest.mark.parametrize("outcome", [AcceptedState(), ReleasedState(), RejectedState()])
def test_messages_that_an_administrator_has_taken_from_a_link_are_left_out_of_its_outcomes(
    broker: Broker, client: Receiving, outcome: State
) -> None:
    store = broker.store
    send(broker, 3)
    link = client.receiver("r", credit=3)
    ids = [client.received() for _ in range(3)]
    one, two, _ = store.browse("orders")
    for each in (one, two):
        store.release(each.message, "orders").wait(TIMEOUT_S)
    store.acknowledge(one.message, "orders").wait(TIMEOUT_S)
    assert store.take("orders", "somebody") is not None
    link.settle(ids, outcome, settled=False)
    assert client.next_of(events.DispositionReceived).deliveries == ids
    assert store.holders() == ["somebody"]


def test_a_message_that_an_administrator_has_released_does_not_keep_the_others_of_a_link_that_goes(
    orders: Broker,
) -> None:
    """The client's window has room for one message, so the others are taken and not sent."""
    store = orders.store
    send(orders, 3)
    with Receiving(orders, EngineLimits(incoming_window=1)) as client:
        link = client.receiver("r", credit=3)
        client.received()
        assert store.queue("orders").held == 3
        *_, last = store.browse("orders")
        store.release(last.message, "orders").wait(TIMEOUT_S)
        link.detach(closed=True)
        client.next_of(events.LinkDetached)
        assert store.queue("orders").ready == 3


MANY = 400
"""The number of messages that are more than the buffers of a socket take."""


def fill(broker: Broker, queue: str) -> None:
    broker.store.create_address(queue).wait(TIMEOUT_S)
    broker.store.create_queue(QueueConfig(queue, queue)).wait(TIMEOUT_S)
    for _ in range(MANY):
        broker.store.send(Message(queue, bytes(60_000), durable=False), [queue])


def test_a_batch_is_written_before_the_next_one_is_taken(broker: Broker, client: Receiving) -> None:
    fill(broker, "many")
    client.receiver("r", credit=100_000, address="many")
    client.flush()
    wait_until(lambda: broker.store.queue("many").held > 0)
    with Receiving(broker):  # the loop goes on meanwhile
        assert broker.store.queue("many").held < MANY


def test_a_drain_is_not_answered_while_a_full_socket_keeps_messages_from_the_link(
    broker: Broker, client: Receiving
) -> None:
    send(broker, 1)
    fill(broker, "many")
    link = client.receiver("drained")
    client.receiver("r", credit=MANY, address="many")
    client.flush()
    wait_until(lambda: broker.store.queue("many").held > 0)
    link.flow(10, drain=True)
    client.flush()
    event = client.next()
    while not (isinstance(event, events.TransferReceived | events.LinkDrained) and event.link is link):
        event = client.next()
    assert isinstance(event, events.TransferReceived)


def test_a_rejection_of_a_message_that_must_be_read_is_answered_once_its_dead_letter_is_durable(
    broker: Broker, client: Receiving
) -> None:
    store = broker.store
    store.send(Message("orders", bytes(900_000)), ["orders"]).wait(TIMEOUT_S)
    link = client.receiver("r", credit=1)
    while (transfer := client.next_of(events.TransferReceived)).more:
        pass
    link.settle([transfer.delivery_id], RejectedState(), settled=False)
    client.next_of(events.DispositionReceived)
    dead = [each for each in store.queues() if each.config.name != "orders"]
    assert [each.ready for each in dead] == [1]
    assert store.queue("orders").held == 0


def test_a_message_that_is_rejected_right_before_its_link_goes_is_given_to_nobody_else(
    broker: Broker, client: Receiving
) -> None:
    store = broker.store
    store.send(Message("orders", bytes(900_000)), ["orders"]).wait(TIMEOUT_S)
    link = client.receiver("r", credit=1)
    while (transfer := client.next_of(events.TransferReceived)).more:
        pass
    other = client.receiver("other", credit=1)
    link.settle([transfer.delivery_id], RejectedState(), settled=True)
    link.detach(closed=True)  # in one write with the outcome
    client.next_of(events.LinkDetached)
    wait_until(lambda: [each.ready for each in store.queues() if each.config.name != "orders"] == [1])
    other.flow(1, drain=True)
    while not isinstance(event := client.next(), events.LinkDrained):
        assert not isinstance(event, events.TransferReceived)
    assert store.holders() == []
