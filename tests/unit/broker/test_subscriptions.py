"""Subscriptions as JMS has them, durable and shared ones, with the links that Qpid JMS makes for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import proton
import pytest
from proton import ConnectionException, Endpoint, Link, symbol
from proton.reactor import Container, ReceiverOption, Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from journal.amqp.settings import AmqpSettings
from journal.store.model import Message
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker


class Source(ReceiverOption):
    """The source of a subscription, as Qpid JMS asks for it."""

    def __init__(self, *capabilities: str, durable: bool = True) -> None:
        self.capabilities = [symbol("topic"), *map(symbol, capabilities)]
        self.durable = durable

    def apply(self, receiver: Link) -> None:
        source = receiver.source
        source.capabilities.put_array(False, proton.Data.SYMBOL)
        source.capabilities.enter()
        for each in self.capabilities:
            source.capabilities.put_symbol(each)
        source.capabilities.exit()
        source.durability = proton.Terminus.DELIVERIES if self.durable else proton.Terminus.NONDURABLE
        source.expiry_policy = proton.Terminus.EXPIRE_NEVER if self.durable else proton.Terminus.EXPIRE_WITH_LINK


SHARED = Source("shared")
SHARED_BY_ALL = Source("shared", "global")


def connect(broker: Broker, client_id: str) -> BlockingConnection:
    """A connection with a client id, as Qpid JMS makes it."""
    container = Container()
    container.container_id = client_id
    return BlockingConnection(
        broker.url,
        timeout=TIMEOUT_S,
        container=container,
        allowed_mechs="ANONYMOUS",
        desired_capabilities=symbol("sole-connection-for-container"),
    )


@pytest.fixture
def clerk(broker: Broker) -> Iterator[BlockingConnection]:
    connection = connect(broker, "clerk")
    yield connection
    connection.close()


def subscribe(
    connection: BlockingConnection, name: str, *options: ReceiverOption, topic: str = "news"
) -> BlockingReceiver:
    return connection.create_receiver(topic, name=name, options=list(options or [Source()]))


def publish(connection: BlockingConnection, *bodies: object, topic: str = "topic://news") -> None:
    """Each body is also the property `n`."""
    sender = connection.create_sender(topic)
    for body in bodies:
        sender.send(proton.Message(body=body, properties={"n": body}))
    sender.close()


def received(receiver: BlockingReceiver, count: int) -> list[object]:
    found = []
    for _ in range(count):
        found.append(receiver.receive(TIMEOUT_S).body)
        receiver.accept()
    return found


def detach(connection: BlockingConnection, *receivers: BlockingReceiver) -> None:
    """Detach links without closing them. A link that is made and closed behind that shows that the broker has taken
    it, because proton does not say so."""
    for each in receivers:
        each.link.detach()
    connection.create_sender(None).close()


def queues(broker: Broker) -> dict[str, int]:
    """The messages of each queue, ready or held."""
    return {each.config.name: each.ready + each.held for each in broker.store.queues()}


def unsubscribe(connection: BlockingConnection, name: str) -> None:
    """What `Session.unsubscribe` of Qpid JMS does: a link with the name and a null source, which it closes."""
    session = connection.conn.session()
    session.open()
    link = session.receiver(name)
    link.source.type = proton.Terminus.UNSPECIFIED
    link.open()
    connection.wait(lambda: link.state & Endpoint.REMOTE_ACTIVE, timeout=TIMEOUT_S)
    assert link.remote_source.address == "news"
    link.close()
    connection.wait(lambda: link.state & Endpoint.REMOTE_CLOSED, timeout=TIMEOUT_S)


# ---- durable ---------------------------------------------------------------------------------------------------


def test_a_durable_subscription_gets_what_is_published_while_nobody_receives(broker: Broker) -> None:
    client = connect(broker, "clerk")
    receiver = subscribe(client, "inbox")
    detach(client, receiver)
    publish(client, 1, 2)
    broker.crash()
    client = connect(broker, "clerk")
    assert received(subscribe(client, "inbox"), 2) == [1, 2]
    client.close()
    assert queues(broker) == {"clerk.inbox": 0}


def test_credit_that_comes_before_the_subscription_is_durable_counts(clerk: BlockingConnection) -> None:
    link = clerk.container.create_receiver(clerk.conn, "topic://news")
    link.flow(1)  # in one write with the attach, as ProtonJ2 does
    clerk.wait(lambda: link.state & Endpoint.REMOTE_ACTIVE, timeout=TIMEOUT_S)
    clerk.create_sender("topic://news").send(proton.Message(body="news"))
    clerk.wait(lambda: link.queued == 1, timeout=TIMEOUT_S)


def test_a_subscription_is_answered_once_it_is_durable(broker: Broker) -> None:
    broker.store.create_address("news").wait(TIMEOUT_S)
    client = connect(broker, "clerk")
    with broker.node.blocked_writer():
        session = client.conn.session()
        session.open()
        link = session.receiver("inbox")
        link.source.address = "news"
        Source().apply(link)
        link.open()
        client.container.timeout = 0.05
        for _ in range(20):
            client.container.process()
        assert not link.state & Endpoint.REMOTE_ACTIVE
    client.wait(lambda: link.state & Endpoint.REMOTE_ACTIVE, timeout=TIMEOUT_S)
    client.close()


def test_a_close_ends_the_subscription_with_its_messages(broker: Broker, clerk: BlockingConnection) -> None:
    receiver = subscribe(clerk, "inbox")
    publish(clerk, 1)
    receiver.close()
    assert queues(broker) == {}
    broker.crash()
    assert queues(broker) == {}


def test_a_link_without_a_source_ends_the_subscription_of_its_name(broker: Broker, clerk: BlockingConnection) -> None:
    detach(clerk, subscribe(clerk, "inbox"))
    unsubscribe(clerk, "inbox")
    assert queues(broker) == {}
    with pytest.raises(LinkDetached, match="not-found"):
        unsubscribe(clerk, "inbox")


def test_a_link_without_a_source_ends_no_queue_that_is_no_subscription(broker: Broker) -> None:
    client = connect(broker, "orders")
    client.create_sender("orders.eu").send(proton.Message(body="an order"))
    with pytest.raises(LinkDetached, match=r"not-found.*there is no durable subscription orders\.eu"):
        unsubscribe(client, "eu")
    assert queues(broker) == {"orders.eu": 1}
    client.close()


def test_a_subscription_that_is_in_use_is_locked(broker: Broker, clerk: BlockingConnection) -> None:
    subscribe(clerk, "inbox")
    with pytest.raises(LinkDetached, match=r"resource-locked.*subscription clerk\.inbox is in use"):
        subscribe(clerk, "inbox|2", SHARED)
    with pytest.raises(LinkDetached, match="resource-locked"):
        unsubscribe(clerk, "inbox")


def test_another_selector_or_topic_makes_the_subscription_anew(broker: Broker, clerk: BlockingConnection) -> None:
    receiver = subscribe(clerk, "inbox", Source(), Selector("n > 1"))
    publish(clerk, 1, 2)
    detach(clerk, receiver)
    receiver = subscribe(clerk, "inbox", Source(), Selector("n > 1"))
    assert received(receiver, 1) == [2]
    publish(clerk, 3)
    detach(clerk, receiver)
    receiver = subscribe(clerk, "inbox", Source(), Selector("n > 2"))
    publish(clerk, 2, 4)
    assert received(receiver, 1) == [4]
    publish(clerk, 5)
    detach(clerk, receiver)
    detach(clerk, subscribe(clerk, "inbox", topic="weather"))
    publish(clerk, 6)
    assert queues(broker) == {"clerk.inbox": 0}


def test_a_subscription_stays_if_the_topic_that_replaces_its_own_cannot_be_made(tmp_path: Path) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", auto_create=False))
    broker.store.create_address("news").wait(TIMEOUT_S)
    client = connect(broker, "clerk")
    detach(client, subscribe(client, "inbox"))
    publish(client, 1)
    with pytest.raises(LinkDetached, match="there is no address nwes"):
        subscribe(client, "inbox", topic="nwes")
    assert queues(broker) == {"clerk.inbox": 1}
    client.close()
    broker.close()


def test_what_a_detached_link_had_not_settled_comes_back(broker: Broker, clerk: BlockingConnection) -> None:
    receiver = subscribe(clerk, "inbox")
    publish(clerk, 1)
    assert receiver.receive(TIMEOUT_S).body == 1
    detach(clerk, receiver)
    found = subscribe(clerk, "inbox").receive(TIMEOUT_S)
    assert (found.body, found.delivery_count, found.first_acquirer) == (1, 1, False)


def test_a_queue_that_is_no_subscription_is_not_taken_for_one(broker: Broker, clerk: BlockingConnection) -> None:
    clerk.create_sender("clerk.inbox")
    with pytest.raises(LinkDetached, match=r"queue clerk\.inbox exists, and is no such subscription"):
        subscribe(clerk, "inbox")


# ---- shared ----------------------------------------------------------------------------------------------------


def test_links_that_share_a_subscription_get_each_message_once(broker: Broker, clerk: BlockingConnection) -> None:
    other = connect(broker, "another clerk")
    receivers = [
        subscribe(clerk, "inbox|global", SHARED_BY_ALL),
        subscribe(clerk, "inbox|global2", SHARED_BY_ALL),
        subscribe(other, "inbox|global", SHARED_BY_ALL),
    ]
    publish(clerk, 1, 2, 3)
    assert sorted(str(received(each, 1)[0]) for each in receivers) == ["1", "2", "3"]
    receivers[0].close()
    assert list(queues(broker)) == ["inbox:global"], "others use it"


def test_a_shared_subscription_that_is_not_durable_goes_with_its_last_link(
    broker: Broker, clerk: BlockingConnection
) -> None:
    shared = Source("shared", durable=False)
    receivers = [subscribe(clerk, f"inbox|volatile{number}", shared) for number in (1, 2)]
    durable = subscribe(clerk, "inbox", SHARED)
    assert sorted(queues(broker)) == ["clerk.inbox", "clerk.inbox:shared-volatile"]
    detach(clerk, *receivers, durable)
    publish(clerk, 1)
    assert queues(broker) == {"clerk.inbox": 1}


def test_a_shared_subscription_in_use_keeps_its_selector(broker: Broker, clerk: BlockingConnection) -> None:
    subscribe(clerk, "inbox", SHARED, Selector("n = 1"))
    with pytest.raises(LinkDetached, match="in use with another selector"):
        subscribe(clerk, "inbox|2", SHARED, Selector("n = 2"))


# ---- selectors, and clients ------------------------------------------------------------------------------------


def test_a_plain_subscription_gets_what_its_selector_selects(broker: Broker, client: BlockingConnection) -> None:
    receiver = client.create_receiver("topic://news", options=Selector("n BETWEEN 2 AND 3"))
    publish(client, 1, 2, 3, 4)
    assert received(receiver, 2) == [2, 3]
    with pytest.raises(LinkDetached, match="invalid-field"):
        client.create_receiver("topic://news", name="wrong", options=Selector("n >"))


def test_a_queue_that_a_transaction_sends_to_goes_after_its_link(broker: Broker, client: BlockingConnection) -> None:
    receivers = [client.create_receiver("topic://news"), client.create_receiver(None, dynamic=True)]
    tx = broker.store.begin()
    for name in queues(broker):
        broker.store.send(Message(broker.store.queue(name).config.address, b"1"), [name], tx)
    for each in receivers:
        each.close()
    assert len(queues(broker)) == 2
    broker.store.commit(tx)
    wait_until(lambda: queues(broker) == {})


def test_a_client_id_is_of_one_connection(broker: Broker, clerk: BlockingConnection) -> None:
    with pytest.raises(ConnectionException, match="container id clerk is in use"):
        connect(broker, "clerk")
    clerk.close()
    connect(broker, "clerk").close()
