"""What a user may do, action by action, and how much of it."""

from __future__ import annotations

import logging
from typing import Any

import proton
import pytest
from proton import ConnectionException
from proton.reactor import Container, Copy
from proton.utils import BlockingConnection, LinkDetached, SendException

from journal.broker.security.permissions import Action, Permissions
from journal.broker.security.users import User, Users
from journal.broker.security.users_file import change_users
from journal.errors import InvalidOperationError
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.security.conftest import Serve, UsersOfTest, connect
from tests.unit.broker.test_subscriptions import subscribe

ORDERS = {"#": frozenset(Action) - {Action.CREATE}, "orders.*": frozenset({Action.CREATE})}


def only(*actions: Action, on: str = "orders.eu") -> dict[str, frozenset[Action]]:
    return {on: frozenset(actions)}


@pytest.fixture
def broker(serve: Serve) -> Broker:
    """One with the queue `orders.eu`."""
    made = serve()
    client = connect(made)
    client.create_sender("orders.eu")
    client.close()
    return made


def test_a_user_may_do_what_is_granted_and_nothing_else(
    broker: Broker, users: UsersOfTest, caplog: pytest.LogCaptureFixture
) -> None:
    users.add("sender", only(Action.SEND))
    users.add("taker", only(Action.CONSUME, on="orders.*"))
    sender, taker = connect(broker, "sender"), connect(broker, "taker")
    sender.create_sender("orders.eu").send(proton.Message(body=1))
    assert taker.create_receiver("orders.eu").receive(TIMEOUT_S).body == 1
    with pytest.raises(LinkDetached, match=r"amqp:unauthorized-access.*user sender may not consume orders\.eu"):
        sender.create_receiver("orders.eu").receive(TIMEOUT_S)
    with pytest.raises(LinkDetached, match=r"user taker may not send orders\.eu"):
        taker.create_sender("orders.eu")
    for address in ("orders", "other", "orders.eu.north", "orders.eu::other"):
        with pytest.raises(LinkDetached, match=r"user sender may not send|has no queue"):
            sender.create_sender(address)
    grant = f"`kafka-journal users grant --file {users.path} sender orders.eu consume` grants it"
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [each for each in said if grant in each]
    sender.close()
    taker.close()


@pytest.mark.parametrize("action", list(Action))
def test_each_action_is_granted_by_itself(action: Action) -> None:
    users = Users(b"secret", {"a": User("a", (), Permissions(only(action)), {})}, {})
    assert [each for each in Action if users.allow("a", each, "orders.eu")] == [action]
    assert not any(users.allow(name, action, address) for name, address in (("a", "orders"), ("b", "orders.eu")))


def test_an_address_is_made_only_for_a_user_who_may_create_it(broker: Broker, users: UsersOfTest) -> None:
    users.add("bob", ORDERS)
    client = connect(broker, "bob")
    client.create_sender("orders.us")
    client.create_receiver("topic://orders.news")
    for attach in (
        lambda: client.create_sender("sales"),
        lambda: client.create_receiver("sales").receive(TIMEOUT_S),
        lambda: client.create_receiver("topic://sales").receive(TIMEOUT_S),
    ):
        with pytest.raises(LinkDetached, match="user bob may not create sales"):
            attach()
    with pytest.raises(LinkDetached, match="user bob may not create temporary"):
        client.create_receiver(None, dynamic=True)
    assert {each.config.address for each in broker.store.queues()} == {"orders.eu", "orders.us", "orders.news"}
    client.close()


def test_each_address_of_the_anonymous_terminus_is_checked(broker: Broker, users: UsersOfTest) -> None:
    users.add("bob", only(Action.SEND))
    client = connect(broker, "bob")
    sender = client.create_sender(None)
    sender.send(proton.Message(body=1, address="orders.eu"))
    with pytest.raises(SendException):
        sender.send(proton.Message(body=2, address="sales"))
    sender.send(proton.Message(body=3, address="orders.eu"))
    assert broker.store.queue("orders.eu").ready == 2
    client.close()


def test_answers_go_through_temporary_queues_of_users_who_may_create_them(broker: Broker, users: UsersOfTest) -> None:
    users.add("asks", only(Action.CREATE, on="temporary"))
    users.add("answers", only(Action.SEND, on="temporary"))
    asks, answers = connect(broker, "asks"), connect(broker, "answers")
    receiver = asks.create_receiver(None, dynamic=True)
    answers.create_sender(receiver.link.remote_source.address).send(proton.Message(body="answer"))
    assert receiver.receive(TIMEOUT_S).body == "answer"
    asks.close()
    answers.close()


def test_a_permission_counts_from_the_moment_that_it_is_granted(broker: Broker, users: UsersOfTest) -> None:
    users.add("bob", {})
    client = connect(broker, "bob")
    with pytest.raises(LinkDetached, match="may not send"):
        client.create_sender("orders.eu")
    users.add("bob", only(Action.SEND))
    client.create_sender("orders.eu", name="again").send(proton.Message(body=1))
    client.close()


def test_a_role_gives_its_permissions_to_its_users(users: UsersOfTest, broker: Broker) -> None:
    def with_role(before: Users) -> Users:
        made = before.with_role("clerks", Permissions(only(Action.SEND)))
        return made.with_user(User("bob", ("clerks",), Permissions({}), made.user("alice").verifiers))

    change_users(users.path, with_role)
    client = connect(broker, "bob")
    client.create_sender("orders.eu").send(proton.Message(body=1))
    change_users(users.path, lambda before: before.with_role("clerks", Permissions({})))
    with pytest.raises(LinkDetached, match="may not send"):
        client.create_sender("orders.eu", name="again")
    client.close()


def test_a_role_that_there_is_not_is_given_to_nobody() -> None:
    with pytest.raises(InvalidOperationError, match="there is no role 'clerks'"):
        Users.none().with_user(User("bob", ("clerks",), Permissions({}), {}))


# ---- limits --------------------------------------------------------------------------------------------------------


def limited(serve: Serve, users: UsersOfTest, **limits: int) -> Broker:
    """A broker with these limits of a user, and two users."""
    users.add("bob")
    return serve(amqp={"per_user": limits})


def test_a_connection_of_a_user_too_many_is_closed_and_counts_no_more(serve: Serve, users: UsersOfTest) -> None:
    broker = limited(serve, users, connections_max=1)
    client = connect(broker)
    with pytest.raises(ConnectionException, match=r"resource-limit-exceeded.*user alice has 1 connection:"):
        _used(connect(broker))
    _used(connect(broker, "bob"))
    client.close()
    wait_until(lambda: _used(connect(broker)))


def _used(client: BlockingConnection) -> bool:
    client.create_sender("orders").close()
    client.close()
    return True


def test_a_session_of_a_user_too_many_is_ended(serve: Serve, users: UsersOfTest) -> None:
    broker = limited(serve, users, sessions_max=2)
    client, other = connect(broker), connect(broker)
    client.create_sender("orders")
    other.create_sender("orders")
    session = client.conn.session()
    session.open()
    client.wait(lambda: session.state & proton.Endpoint.REMOTE_CLOSED, timeout=TIMEOUT_S)
    assert session.remote_condition.name == "amqp:resource-limit-exceeded"
    _used(connect(broker, "bob"))
    other.close()
    wait_until(lambda: _used(connect(broker)))
    client.close()


def test_a_link_of_a_user_too_many_is_refused(serve: Serve, users: UsersOfTest) -> None:
    broker = limited(serve, users, links_max=2)
    client, other = connect(broker), connect(broker)
    first = client.create_sender("orders")
    receiver = other.create_receiver("orders")
    with pytest.raises(LinkDetached, match=r"resource-limit-exceeded.*user alice has 2 links"):
        client.create_sender("orders", name="again")
    first.close()
    _freed(lambda: client.create_sender("orders", name="third"))
    receiver.close()
    other.close()
    _freed(lambda: client.create_sender("orders", name="fourth"))
    client.close()


def _freed(attach: Any) -> None:
    def tried() -> bool:
        try:
            attach()
        except LinkDetached:
            return False
        return True

    wait_until(tried)


def test_a_user_who_settles_nothing_gets_no_more_and_goes_on_once_it_has(serve: Serve, users: UsersOfTest) -> None:
    """The bound is on both connections of a user together; another user has one of its own."""
    broker = limited(serve, users, in_flight_max=3)
    bob, client, other = connect(broker, "bob"), connect(broker), connect(broker)
    sender = bob.create_sender("orders")
    for number in range(6):
        sender.send(proton.Message(body=number))

    def counts() -> tuple[int, int]:
        queue = broker.store.queue("orders")
        return queue.ready, queue.held

    first = client.create_receiver("orders", credit=10)
    wait_until(lambda: counts() == (3, 3))
    other.create_receiver("orders", credit=10)
    bob.create_receiver("orders", credit=1)
    wait_until(lambda: counts() == (2, 4))
    assert first.receive(TIMEOUT_S).body == 0
    first.accept()
    client.create_sender("orders")  # proton sends what it has to say with the next call
    wait_until(lambda: counts() == (1, 4))
    client.close()
    # the other connection has the three that its user may have, and one is left
    wait_until(lambda: counts() == (1, 4))
    other.close()
    wait_until(lambda: counts() == (4, 1))
    bob.close()


def test_who_may_browse_may_not_consume(broker: Broker, users: UsersOfTest) -> None:
    users.add("looks", only(Action.BROWSE))
    alice, client = connect(broker), connect(broker, "looks")
    alice.create_sender("orders.eu").send(proton.Message(body=1))
    assert client.create_receiver("orders.eu", options=Copy()).receive(TIMEOUT_S).body == 1
    with pytest.raises(LinkDetached, match="user looks may not consume"):
        client.create_receiver("orders.eu", name="takes").receive(TIMEOUT_S)
    assert broker.store.queue("orders.eu").ready == 1
    client.close()
    alice.close()


def test_a_subscription_is_not_made_anew_by_a_user_who_may_not_consume_its_address(
    broker: Broker, users: UsersOfTest
) -> None:
    """A client takes another one's client id, and asks for its subscription at another address."""
    users.add("bob", {"sport": frozenset(Action)})
    for name, topic in (("alice", "news"), ("bob", "sport")):
        container = Container()
        container.container_id = "clerk"
        client = connect(broker, name, container=container)
        if name == "alice":
            subscribe(client, "desk", topic=topic)
        else:
            with pytest.raises(LinkDetached, match="user bob may not consume news"):
                subscribe(client, "desk", topic=topic)
        client.close()
    assert broker.store.queue("clerk.desk").config.address == "news"
