"""Selectors and browsers of queues, as a client of AMQP uses them: proton, unmodified."""

from __future__ import annotations

import proton
import pytest
from proton.reactor import Copy, DurableSubscription, Filter, Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.unit.broker.conftest import TIMEOUT_S, Broker

REGIONS = ("eu", "us", "eu", "us", "eu")


def send(client: BlockingConnection, *regions: str) -> None:
    sender = client.create_sender("orders")
    for number, region in enumerate(regions):
        sender.send(proton.Message(body=number, properties={"region": region}))


def drained(client: BlockingConnection, receiver: BlockingReceiver) -> list[object]:
    """What comes until the queue ends."""
    receiver.link.drain(100)
    client.wait(lambda: receiver.link.credit == 0)
    return [receiver.fetcher.pop().body for _ in range(len(receiver.fetcher.incoming))]


def test_a_receiver_gets_what_its_selector_selects_and_another_gets_the_rest(
    broker: Broker, client: BlockingConnection
) -> None:
    send(client, *REGIONS)
    broker.crash()  # nothing is in memory but what is read
    client = broker.connect()
    us = client.create_receiver("orders", name="us", credit=10, options=Selector("region = 'us'"))
    assert [us.receive(TIMEOUT_S).body for _ in range(2)] == [1, 3]
    everything = client.create_receiver("orders", name="everything", credit=10)
    assert [everything.receive(TIMEOUT_S).body for _ in range(3)] == [0, 2, 4]
    client.close()


def test_what_is_released_comes_back_to_the_selector_that_selects_it(client: BlockingConnection) -> None:
    send(client, *REGIONS)
    us = client.create_receiver("orders", name="us", credit=2, options=Selector("region = 'us'"))
    assert us.receive(TIMEOUT_S).body == 1
    us.release()
    us.link.flow(1)
    assert {us.receive(TIMEOUT_S).body for _ in range(2)} == {1, 3}
    other = client.create_receiver("orders", name="other", options=Selector("JMSPriority = 4 AND region <> 'us'"))
    assert other.receive(TIMEOUT_S).body == 0


def test_the_answer_names_the_filters_that_are_in_force_and_no_others(client: BlockingConnection) -> None:
    send(client, *REGIONS)
    asked = {
        proton.symbol("jms-selector"): proton.Described(proton.ulong(0x0000468C00000004), "region = 'us'"),
        proton.symbol("other"): proton.Described(proton.symbol("example:other"), "x"),
    }
    receiver = client.create_receiver("orders", options=Filter(asked))
    assert receiver.receive(TIMEOUT_S).body == 1
    in_force = receiver.link.remote_source.filter
    in_force.rewind()
    assert in_force.next() is not None
    assert list(in_force.get_object()) == ["jms-selector"]


def test_a_selector_that_is_none_refuses_the_link_in_words(client: BlockingConnection) -> None:
    send(client, "eu")
    with pytest.raises(LinkDetached, match="amqp:invalid-field"):
        client.create_receiver("orders", options=Selector("region = ")).receive(TIMEOUT_S)


def test_a_browser_sees_each_message_once_and_holds_none(broker: Broker, client: BlockingConnection) -> None:
    send(client, *REGIONS)
    browser = client.create_receiver("orders", name="browser", options=Copy())
    assert drained(client, browser) == [0, 1, 2, 3, 4]
    assert drained(client, browser) == []
    eu = client.create_receiver("orders", name="eu", options=[Copy(), Selector("region = 'eu'")])
    assert drained(client, eu) == [0, 2, 4]
    browser.close()
    eu.close()
    found = broker.store.queue("orders")
    assert (found.ready, found.held) == (5, 0)
    assert {each.deliveries for each in broker.store.browse("orders")} == {0}


def test_what_is_undeliverable_here_goes_to_another_receiver(client: BlockingConnection) -> None:
    send(client, "eu")
    here = client.create_receiver("orders", name="here", credit=1)
    assert here.receive(TIMEOUT_S).body == 0
    here.fetcher.unsettled[0].local.undeliverable = True
    here.settle(proton.Delivery.MODIFIED)
    assert drained(client, here) == []
    there = client.create_receiver("orders", name="there", credit=1)
    assert there.receive(TIMEOUT_S).body == 0


def test_a_subscription_without_local_messages_gets_those_of_other_clients(
    broker: Broker, client: BlockingConnection
) -> None:
    no_local = Filter(
        {proton.symbol("no-local"): proton.Described(proton.symbol("apache.org:no-local-filter:list"), [])}
    )
    others_only = client.create_receiver("topic://news", name="others", credit=5, options=no_local)
    everything = client.create_receiver("topic://news", name="everything", credit=5)
    client.create_sender("topic://news").send(proton.Message(body="mine"))
    other = broker.connect()
    other.create_sender("topic://news").send(proton.Message(body="theirs"))
    assert others_only.receive(TIMEOUT_S).body == "theirs"
    assert [everything.receive(TIMEOUT_S).body for _ in range(2)] == ["mine", "theirs"]
    with pytest.raises(LinkDetached, match="no-local"):
        client.create_receiver("topic://news", name="kept", options=[no_local, DurableSubscription()])
    other.close()
