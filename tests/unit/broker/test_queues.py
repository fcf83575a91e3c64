"""Queues as a client of AMQP uses them: proton, unmodified."""

from __future__ import annotations

import gc
import logging
from pathlib import Path

import proton
import pytest
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached, SendException

from journal.amqp import events
from journal.amqp.encoding import encode_value
from journal.amqp.handshake import SASL_OK
from journal.amqp.message_types import SourceTerminus, TargetTerminus
from journal.amqp.sections import VALUE, MessageSections
from journal.amqp.settings import AmqpSettings, Durability
from journal.amqp.transport_types import SaslOutcomeFrame
from journal.broker.messages import message_of, transfer_of
from journal.store.model import QueueConfig
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.security.test_login import EngineClient


def test_what_is_accepted_survives_a_crash_byte_for_byte(broker: Broker) -> None:
    sent = proton.Message(
        body={"order": [1, 2.5, "three"]},
        properties={"region": "eu", "count": proton.int32(7), "none": None},
        annotations={proton.symbol("x-opt-of-mine"): 1},
        id="id 1",
        correlation_id=proton.ulong(9),
        subject="order",
        reply_to="answers",
        content_type="text/x",
        group_id="g",
        priority=7,
    )
    client = broker.connect()
    assert client.create_sender("orders").send(sent).remote_state == proton.Delivery.ACCEPTED
    broker.crash()
    client = broker.connect()
    found = client.create_receiver("orders").receive(TIMEOUT_S)
    for name in ("body", "properties", "annotations", "id", "correlation_id", "subject", "reply_to", "content_type"):
        assert getattr(found, name) == getattr(sent, name)
    assert type(found.properties["count"]) is proton.int32
    assert (found.group_id, found.priority, found.durable, found.delivery_count) == ("g", 7, True, 0)
    client.close()


@pytest.mark.parametrize(("durability", "left"), [("always", ["not durable", "durable"]), ("as-sent", ["durable"])])
def test_what_survives_a_crash_is_what_the_setting_durability_says(
    durability: str, left: list[str], tmp_path: Path
) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", durability=Durability(durability)))
    client = broker.connect()
    sender = client.create_sender("orders")
    sender.send(proton.Message("not durable"))
    sender.send(proton.Message("durable", durable=True))
    broker.crash()
    client = broker.connect()
    receiver = client.create_receiver("orders", credit=2)
    assert [receiver.receive(TIMEOUT_S).body for _ in left] == left
    assert broker.store.queue("orders").held == len(left)
    client.close()
    broker.close()


def test_a_message_that_is_a_body_alone_comes_out_as_it_went_in() -> None:
    payload = b"\x00\x53\x77" + encode_value({"one": 1})
    message = message_of(MessageSections(payload), "orders", now_ms=0)
    sent = MessageSections(transfer_of(message, 0, redelivered=False, now_ms=0))
    assert sent.payload.endswith(payload)
    assert sent.body() == (VALUE, {"one": 1})


def test_the_store_sees_body_headers_and_properties(broker: Broker, client: BlockingConnection) -> None:
    client.create_sender("orders").send(
        proton.Message(body=b"bytes", properties={"region": "eu", "n": 3}, correlation_id="c", subject="order")
    )
    taken = broker.store.take("orders", "somebody")
    assert taken is not None
    message = broker.store.message(taken.message)
    assert message.body == b"bytes"
    assert dict(message.properties) == {"region": "eu", "n": 3}
    assert dict(message.headers) == {"JMSCorrelationID": "c", "JMSType": "order"}


def test_a_queues_filter_sees_headers_and_properties(broker: Broker, client: BlockingConnection) -> None:
    broker.store.create_address("orders").wait(TIMEOUT_S)
    filter = "region = 'eu' AND n > 2 AND JMSCorrelationID = 'c' AND JMSPriority = 7"
    broker.store.create_queue(QueueConfig("orders/eu", "orders", filter=filter)).wait(TIMEOUT_S)
    sender = client.create_sender("orders")
    for region, n in (("eu", 2), ("us", 3), ("eu", 3)):
        sender.send(proton.Message(n, properties={"region": region, "n": n}, correlation_id="c", priority=7))
    found = client.create_receiver("orders::orders/eu").receive(TIMEOUT_S)
    assert (found.body, found.properties["region"]) == (3, "eu")


def test_outcomes(broker: Broker, client: BlockingConnection) -> None:
    """Accepted is gone, released and modified come again, rejected is gone."""
    sender = client.create_sender("orders")
    for body in ("accepted", "released", "modified", "rejected"):
        sender.send(proton.Message(body=body))
    receiver = client.create_receiver("orders", credit=10)
    found = [receiver.receive(TIMEOUT_S) for _ in range(4)]
    assert [each.body for each in found] == ["accepted", "released", "modified", "rejected"]
    receiver.accept()
    receiver.settle(proton.Delivery.RELEASED)
    receiver.settle(proton.Delivery.MODIFIED)
    receiver.settle(proton.Delivery.REJECTED)
    again = [receiver.receive(TIMEOUT_S) for _ in range(2)]
    assert [(each.body, each.delivery_count) for each in again] == [("released", 0), ("modified", 0)]
    receiver.accept()
    receiver.accept()
    client.close()
    wait_until(lambda: broker.store.queue("orders").held == 0 and broker.store.queue("orders").ready == 0)


def test_a_connection_that_ends_gives_back_what_it_had(broker: Broker, client: BlockingConnection) -> None:
    sender = client.create_sender("orders")
    for number in range(3):
        sender.send(proton.Message(body=number))
    other = broker.connect()
    receiver = other.create_receiver("orders", credit=2)
    assert receiver.receive(TIMEOUT_S).body == 0
    other.close()
    receiver = client.create_receiver("orders", credit=3)
    found = [receiver.receive(TIMEOUT_S) for _ in range(3)]
    assert [each.body for each in found] == [0, 1, 2]
    assert found[0].delivery_count == 1


def test_a_topic_gives_every_subscriber_each_message(broker: Broker, client: BlockingConnection) -> None:
    receivers = [client.create_receiver("topic://news", name=name) for name in ("one", "two")]
    client.create_sender("topic://news").send(proton.Message(body="news"))
    assert [each.receive(TIMEOUT_S).body for each in receivers] == ["news", "news"]


def test_presettled_messages_are_gone_when_they_are_sent(broker: Broker, client: BlockingConnection) -> None:
    sender = client.create_sender("orders", options=AtMostOnce())
    sender.send(proton.Message(body="once"))
    receiver = client.create_receiver("orders", options=AtMostOnce())
    assert receiver.receive(TIMEOUT_S).body == "once"
    wait_until(lambda: broker.store.queue("orders").held == 0)
    assert broker.store.queue("orders").ready == 0


def test_the_anonymous_terminus_sends_where_each_message_says(client: BlockingConnection) -> None:
    sender = client.create_sender(None)
    sender.send(proton.Message(body=1, address="one"))
    sender.send(proton.Message(body=2, address="two"))
    assert client.create_receiver("two").receive(TIMEOUT_S).body == 2
    with pytest.raises(SendException):
        sender.send(proton.Message(body=3))


def test_what_does_not_exist_is_refused_in_words(broker: Broker, client: BlockingConnection) -> None:
    client.create_sender("orders")
    with pytest.raises(LinkDetached, match="address orders has no queue other"):
        client.create_receiver("orders::other").receive(TIMEOUT_S)
    with pytest.raises(LinkDetached, match="names no address"):
        client.create_sender("::other")


def test_a_node_that_is_no_longer_active_ends_its_connections(broker: Broker) -> None:
    client = broker.connect()
    client.create_sender("orders").send(proton.Message(body=1))
    receiver = client.create_receiver("orders", credit=1)
    assert receiver.receive(TIMEOUT_S).body == 1
    broker.crash()
    with pytest.raises(proton.ConnectionException):
        receiver.receive(TIMEOUT_S)
    client = broker.connect()
    assert client.create_receiver("orders").receive(TIMEOUT_S).body == 1
    client.close()


def test_what_is_rejected_or_came_back_too_often_is_a_dead_letter(broker: Broker, client: BlockingConnection) -> None:
    store = broker.store
    for address in ("orders", "dead"):
        store.create_address(address).wait(TIMEOUT_S)
    store.create_queue(QueueConfig("dead", "dead")).wait(TIMEOUT_S)
    store.create_queue(QueueConfig("orders", "orders", dead_letter_address="dead", deliveries_max=2)).wait(TIMEOUT_S)
    sender = client.create_sender("orders")
    sender.send(proton.Message(body="rejected"))
    receiver = client.create_receiver("orders")
    assert receiver.receive(TIMEOUT_S).body == "rejected"
    receiver.fetcher.unsettled[0].local.condition = proton.Condition("app:bad", "no number")
    receiver.reject()
    sender.send(proton.Message(body="too often"))
    for count in range(2):
        assert (found := receiver.receive(TIMEOUT_S)).body == "too often"
        assert found.delivery_count == count
        receiver.fetcher.unsettled[0].local.failed = True
        receiver.settle(proton.Delivery.MODIFIED)
    receiver.link.flow(1)
    dead = client.create_receiver("dead", name="dead", credit=2)
    assert [dead.receive(TIMEOUT_S).body for _ in range(2)] == ["rejected", "too often"]
    letters = [store.message(each.message) for each in store.browse("dead")]
    assert [each.origin.reason for each in letters if each.origin] == ["rejected: app:bad: no number", "dead"]


def test_a_link_may_close_while_its_messages_are_being_read(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    client = broker.connect()
    client.create_sender("orders").send(proton.Message(body=1))
    broker.crash()
    with EngineClient(broker) as raw:
        assert raw.login("ANONYMOUS", b"") == SaslOutcomeFrame(SASL_OK)
        raw.engine.open()
        assert isinstance(raw.next(), events.ConnectionOpened)
        session = raw.engine.session()
        session.begin()
        link = session.receiver("r")
        link.attach(SourceTerminus("orders"), TargetTerminus("here"))
        link.flow(5)
        link.detach(closed=True)  # in one write with the credit
        while not isinstance(raw.next(), events.LinkDetached):
            pass
    wait_until(lambda: broker.store.queue("orders").ready == 1)
    broker.crash()
    gc.collect()  # an error of a task that nobody awaits is logged when the task goes
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_what_is_sent_settled_right_before_its_link_or_connection_ends_is_there(broker: Broker) -> None:
    for ends in ("link", "connection"):
        client = broker.connect()
        sender = client.create_sender("orders", options=AtMostOnce())
        with broker.node.blocked_writer():
            for number in range(50):
                sender.link.send(proton.Message(body=number))
            # all of it goes to the broker in one piece
            (sender.link if ends == "link" else client.conn).close()
            client.container.timeout = 0.05
            for _ in range(10):
                client.container.process()
        if ends == "link":
            client.close()
    wait_until(lambda: broker.store.queue("orders").ready == 100)
