"""What a client cannot have: each with its condition, in bounded memory, and nobody else is disturbed."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import proton
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection, LinkDetached, SendException
from pydantic import ValidationError

from journal.amqp.frames import SASL_HEADER
from journal.amqp.security_settings import SecuritySettings
from journal.amqp.settings import AmqpSettings
from journal.limits import Limits
from journal.store.model import Message
from tests.support.waiting import wait_until
from tests.unit.broker.conftest import TIMEOUT_S, Broker


def test_a_message_of_many_frames_comes_out_as_it_went_in(client: BlockingConnection) -> None:
    body = bytes(range(256)) * 2048  # half a megabyte
    client.create_sender("orders").send(proton.Message(body=body))
    assert client.create_receiver("orders").receive(TIMEOUT_S).body == body


def test_a_message_over_the_limit_ends_its_link_alone(client: BlockingConnection) -> None:
    sender = client.create_sender("orders")
    with pytest.raises(LinkDetached, match="message-size-exceeded"):
        sender.send(proton.Message(body=bytes(2**20 + 1)))
    client.create_sender("orders", name="other").send(proton.Message(body=1))


SMALL = Limits(queue_operations_max=200, transaction_buffer_operations_max=100)
"""The journal is full after so many operations; a message to a queue is two."""


def test_while_the_journal_is_full_nothing_is_read_and_nothing_is_lost(tmp_path: Path) -> None:
    """The writer is busy: the client's messages wait, and all of them are accepted afterwards."""
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0"), SMALL)
    client = broker.connect()
    sender = client.create_sender("orders")
    with broker.node.blocked_writer():
        deliveries = [sender.link.send(proton.Message(body=number)) for number in range(500)]
        client.container.timeout = 0.05
        for _ in range(20):
            client.container.process()
        assert not any(each.settled for each in deliveries)
        assert broker.store.queue("orders").arriving == 100
    client.wait(lambda: all(each.settled for each in deliveries), timeout=TIMEOUT_S)
    assert broker.store.queue("orders").ready == 500
    client.close()
    broker.close()


def test_what_is_sent_one_by_one_into_a_full_journal_is_there_once(tmp_path: Path) -> None:
    """A duplicate among many messages: the group is refused, so the others go singly, and some find no room."""
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", duplicate_window=10), SMALL)
    client = broker.connect()
    sender = client.create_sender("orders")
    sender.send(proton.Message(id="again", body=0))
    with broker.node.blocked_writer():
        messages = [proton.Message(body=1), proton.Message(id="again", body=0)] + [proton.Message(body=1)] * 498
        deliveries = [sender.link.send(message) for message in messages]
        client.container.timeout = 0.05
        for _ in range(20):
            client.container.process()
        assert not deliveries[-1].settled
    client.wait(lambda: all(each.settled for each in deliveries), timeout=TIMEOUT_S)
    assert broker.store.queue("orders").ready == 500
    client.close()
    broker.close()


def test_a_node_that_is_no_longer_active_refuses_no_message_but_ends_the_connection(
    broker: Broker, client: BlockingConnection
) -> None:
    """Clients send again elsewhere what was not answered; what is rejected they give up."""
    sender = client.create_sender("orders")
    broker.node.journal.close()
    with pytest.raises(ConnectionException, match="amqp:connection:forced"):
        sender.send(proton.Message(body=1))


def test_a_client_that_reads_nothing_is_sent_what_its_socket_takes_and_the_rest_goes_to_others(broker: Broker) -> None:
    client, idle = broker.connect(), broker.connect()
    idle.create_receiver("orders", credit=300)
    sender = client.create_sender("orders")
    for _ in range(300):
        sender.send(proton.Message(body=bytes(200_000)))
    assert broker.store.queue("orders").held < 150
    assert client.create_receiver("orders").receive(TIMEOUT_S).body == bytes(200_000)
    client.close()
    idle.close()


def test_hundreds_of_clients_that_connect_at_once_are_all_served(broker: Broker) -> None:
    host, port = broker.url.removeprefix("amqp://").split(":")
    clients = [socket.create_connection((host, int(port)), timeout=TIMEOUT_S) for _ in range(300)]
    for each in clients:
        each.sendall(SASL_HEADER)
    for each in clients:
        assert each.recv(len(SASL_HEADER)) == SASL_HEADER
        each.close()


def test_what_is_no_amqp_is_answered_with_the_header_of_it(broker: Broker) -> None:
    host, port = broker.url.removeprefix("amqp://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        received = b""
        while piece := raw.recv(1000):
            received += piece
    assert received.startswith(b"AMQP\x03\x01\x00\x00")


def test_a_mechanism_that_is_not_offered_is_refused(broker: Broker) -> None:
    with pytest.raises(ConnectionException):
        BlockingConnection(broker.url, timeout=TIMEOUT_S, allowed_mechs="PLAIN", user="u", password="p")


def test_one_connection_too_many_is_closed_and_the_others_go_on(tmp_path: Path) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", connections_max=1))
    client = broker.connect()
    with pytest.raises(ConnectionException):
        BlockingConnection(broker.url, timeout=2, allowed_mechs="ANONYMOUS")
    client.create_sender("orders").send(proton.Message(body=1))
    client.close()
    wait_until(lambda: broker.connect())
    broker.close()


def test_a_node_stops_while_a_client_logs_in(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The client that has not logged in is left, and the others are told."""
    host, port = broker.url.removeprefix("amqp://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as raw:
        raw.sendall(SASL_HEADER)
        while raw.recv(1000)[-1:] != b"S":  # ANONYMOUS
            pass
        client = broker.connect()
        broker.crash()
        with pytest.raises(ConnectionException):
            client.create_sender("orders")
        assert raw.recv(1) == b""
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_an_address_is_not_made_where_that_is_off(tmp_path: Path) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", auto_create=False))
    client = broker.connect()
    with pytest.raises(LinkDetached, match="there is no address orders"):
        client.create_sender("orders")
    client.close()
    broker.close()


def test_a_temporary_queue_goes_with_its_link_and_is_in_no_journal(broker: Broker, client: BlockingConnection) -> None:
    receiver = client.create_receiver(None, dynamic=True)
    address = receiver.link.remote_source.address
    client.create_sender(address).send(proton.Message(body="reply"))
    assert receiver.receive(TIMEOUT_S).body == "reply"
    receiver.close()
    wait_until(lambda: not [each for each in broker.store.queues() if each.config.name == address])
    broker.crash()
    assert [each.config.name for each in broker.store.queues()] == []


def test_messages_of_the_library_are_data_with_properties(broker: Broker, client: BlockingConnection) -> None:
    client.create_sender("orders")
    broker.store.send(
        Message("orders", b"body", headers={"JMSCorrelationID": "c"}, properties={"n": 1, "real": 0.5}), ["orders"]
    ).wait(TIMEOUT_S)
    found = client.create_receiver("orders").receive(TIMEOUT_S)
    assert (found.body, found.correlation_id, found.properties) == (b"body", "c", {"n": 1, "real": 0.5})


@pytest.mark.parametrize("listen", ["0.0.0.0:5672", "broker.example:5672", "[::]:5672"])
def test_other_machines_are_let_in_only_where_somebody_says_so(listen: str) -> None:
    with pytest.raises(ValidationError, match="served without users and TLS"):
        AmqpSettings(listen=listen)
    assert AmqpSettings(listen=listen, insecure=True).address[1] == 5672
    with pytest.raises(ValidationError, match="served without TLS"):
        AmqpSettings(listen=listen, security=SecuritySettings(users_file="users"))
    with pytest.raises(ValidationError, match="served without users"):
        AmqpSettings(listen=listen, security=SecuritySettings(certificate="server.pem"))
    both = AmqpSettings(listen=listen, security=SecuritySettings(users_file="users", certificate="server.pem"))
    assert both.scheme == "amqps"


@pytest.mark.parametrize("listen", ["5672", "host", "host:x", ":5672", "host:99999"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(ValidationError, match="is no address to listen on"):
        AmqpSettings(listen=listen, insecure=True)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:5672", "[::1]:5672"])
def test_this_machine_alone_needs_no_word(listen: str) -> None:
    assert AmqpSettings(listen=listen).address


def test_a_message_that_is_sent_again_under_its_id_is_stored_once_where_an_address_remembers_ids(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", duplicate_window=10))
    client = broker.connect()
    sender = client.create_sender("orders")
    for message_id in ("1", "1", proton.ulong(1), b"1", proton.ulong(1), None, None):
        accepted = sender.send(proton.Message(id=message_id, body=0))
        assert accepted.remote_state == proton.Delivery.ACCEPTED
    assert broker.store.queue("orders").ready == 5
    client.close()
    broker.crash()
    client = broker.connect()
    client.create_sender("orders").send(proton.Message(id="1", body=0))
    assert broker.store.queue("orders").ready == 5
    client.close()
    broker.close()


def test_a_message_whose_id_a_transaction_has_reserved_is_neither_accepted_nor_rejected(tmp_path: Path) -> None:
    """Only the transaction's outcome says whether it is stored."""
    broker = Broker(tmp_path, AmqpSettings(listen="127.0.0.1:0", duplicate_window=10))
    client = broker.connect()
    sender = client.create_sender("orders")
    message_id = proton.ulong(1)
    tx = broker.store.begin()
    broker.store.send(Message("orders", b"", duplicate_id=bytes((0x53, 1))), ["orders"], tx=tx)
    with pytest.raises(SendException) as refused:
        sender.send(proton.Message(id=message_id, body=0))
    assert refused.value.state == proton.Delivery.RELEASED
    broker.store.rollback(tx).wait(TIMEOUT_S)
    sender.send(proton.Message(id=message_id, body=0))
    assert broker.store.queue("orders").ready == 1
    client.close()
    broker.close()
