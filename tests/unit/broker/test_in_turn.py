"""The order of what one client asks, while the journal has room and while it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.amqp.events import LinkDetached
from journal.amqp.message_types import AcceptedState, CoordinatorTerminus, RejectedState
from journal.amqp.settings import AmqpSettings
from journal.errors import StoreError
from journal.limits import Limits
from journal.store.model import QueueConfig, Routing
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.raw_client import RawClient, kinds, message

COORDINATOR = CoordinatorTerminus()
STAGED_MAX = Limits(queue_operations_max=200, transaction_buffer_operations_max=10, staged_operations_max=20)
FULL = Limits(queue_operations_max=200, transaction_buffer_operations_max=100)


def test_a_commit_waits_for_the_messages_of_its_transaction_that_found_no_room(tmp_path: Path) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"), FULL)
    client = RawClient(broker.url)
    sender, coordinator = client.sender("orders"), client.sender(COORDINATOR, "coordinator")
    transaction = client.declare(coordinator)
    with broker.node.blocked_writer():
        for _ in range(150):
            sender.send(message(b"fills the journal"))
        for _ in range(30):
            sender.send(message(b"of the transaction"), state=transaction)
        client.discharge(coordinator, transaction, fail=False)
        client.flush()
        wait_until(lambda: broker.store.queue("orders").arriving == 100)
    assert kinds(client.outcomes(coordinator, 1)) == ["AcceptedState"]
    assert kinds(client.outcomes(sender, 180)) == ["AcceptedState"] * 180
    assert broker.store.queue("orders").ready == 180
    client.close()
    broker.close()


@pytest.mark.parametrize("fail", [False, True])
def test_what_no_transaction_may_have_is_refused_and_the_client_goes_on(tmp_path: Path, fail: bool) -> None:
    """Waiting does not help there: only the end of a transaction makes room."""
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"), STAGED_MAX)
    client = RawClient(broker.url)
    sender, coordinator = client.sender("orders"), client.sender(COORDINATOR, "coordinator")
    transaction = client.declare(coordinator)
    for _ in range(30):
        sender.send(message(b"of the transaction"), state=transaction)
    client.flush()
    outcomes = kinds(client.outcomes(sender, 30))
    assert {*outcomes} == {"AcceptedState", "RejectedState"}
    client.discharge(coordinator, transaction, fail=fail)
    client.flush()
    assert kinds(client.outcomes(coordinator, 1)) == ["AcceptedState"]
    assert broker.store.queue("orders").ready == (0 if fail else outcomes.count("AcceptedState"))
    sender.send(message(b"more"))
    client.flush()
    assert kinds(client.outcomes(sender, 1)) == ["AcceptedState"]
    client.close()
    broker.close()


def test_a_transaction_cannot_commit_without_a_message_whose_client_is_not_told_that_it_is_refused(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"), STAGED_MAX)
    client = RawClient(broker.url)
    sender, coordinator = client.sender("orders"), client.sender(COORDINATOR, "coordinator")
    transaction = client.declare(coordinator)
    for _ in range(30):
        sender.send(message(b"settled"), state=transaction, settled=True)
    client.discharge(coordinator, transaction, fail=False)
    client.flush()
    (outcome,) = client.outcomes(coordinator, 1)
    assert isinstance(outcome, RejectedState)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:transaction:rollback"
    assert broker.store.queue("orders").ready == 0
    client.close()
    broker.close()


def test_a_message_of_many_frames_is_of_the_transaction_that_its_first_frame_names(broker: Broker) -> None:
    client = RawClient(broker.url)
    sender, coordinator = client.sender("orders"), client.sender(COORDINATOR, "coordinator")
    transaction = client.declare(coordinator)
    sender.send(message(bytes(150_000)), state=transaction)
    client.discharge(coordinator, transaction, fail=True)
    client.flush()
    client.outcomes(coordinator, 1)
    assert broker.store.queue("orders").ready == 0
    client.close()


@pytest.mark.parametrize("ends", ["link", "session"])
def test_what_was_declared_by_a_link_that_ends_is_rolled_back(broker: Broker, ends: str) -> None:
    client = RawClient(broker.url)
    sender, coordinator = client.sender("orders"), client.sender(COORDINATOR, "coordinator")
    sender.send(message(b"of nobody"), state=client.declare(coordinator))
    client.flush()
    client.outcomes(sender, 1)
    if ends == "link":
        coordinator.detach(closed=True)
        client.flush()
        client.wait_for(LinkDetached)
    else:
        client.session.end()
        client.flush()
    wait_until(lambda: not broker.store.transactions())
    client.close()


def test_a_message_goes_to_those_who_are_left_if_a_subscriber_leaves_at_the_same_moment(broker: Broker) -> None:
    broker.store.create_address("news").wait(TIMEOUT_S)
    for name, durable in (("stays", True), ("goes", False)):
        broker.store.create_queue(QueueConfig(name, "news", Routing.MULTICAST, durable=durable)).wait(TIMEOUT_S)
    client = RawClient(broker.url)
    sender = client.sender("news")
    send_all, left = broker.store.send_all, []

    def leaves_first(*arguments: object) -> object:
        if not left:
            left.append(broker.store.destroy_queue("goes"))
        return send_all(*arguments)  # type: ignore[arg-type]

    broker.store.send_all = leaves_first  # type: ignore[assignment, method-assign]
    sender.send(message(b"news"))
    client.flush()
    assert client.outcomes(sender, 1) == [AcceptedState()]
    assert broker.store.queue("stays").ready == 1
    with pytest.raises(StoreError):
        broker.store.queue("goes")
    client.close()
