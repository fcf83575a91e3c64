"""Logins over real sockets: proton with PLAIN and ANONYMOUS, and a client of ours with what proton cannot do."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import proton
import pytest
from proton import ConnectionException
from proton.utils import LinkDetached

from journal.amqp import Connection
from journal.amqp.events import ConnectionOpened, Event
from journal.amqp.frames import SASL_HEADER, frame
from journal.amqp.handshake import SASL_AUTH, SASL_OK, SASL_SYS_TEMP
from journal.amqp.limits import EngineLimits
from journal.amqp.transport_types import (
    SaslChallengeFrame,
    SaslInitFrame,
    SaslMechanismsFrame,
    SaslOutcomeFrame,
)
from journal.broker.security.login import Login, Peer
from journal.broker.security.passwords import SCRAM_HASHES
from journal.broker.security.users_file import UsersFile
from journal.errors import ConfigError
from tests.support.scram import ScramClient
from tests.unit.broker.conftest import TIMEOUT_S, Broker
from tests.unit.broker.security.conftest import PASSWORD, Serve, UsersOfTest, connect

ALL = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


class EngineClient:
    """Our engine as a client, on a blocking socket."""

    def __init__(self, broker: Broker, limits: EngineLimits | None = None) -> None:
        host, port = broker.url.removeprefix("amqp://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.engine = Connection.client("client", sasl=True, limits=limits)
        self._events: list[Event] = []
        offered = self.next()
        assert isinstance(offered, SaslMechanismsFrame)
        self.mechanisms = tuple(offered.sasl_server_mechanisms)

    def flush(self) -> None:
        """Send what there is, and read nothing."""
        self._socket.sendall(self.engine.bytes_to_send())

    def next(self) -> Event:
        self.flush()
        while not self._events:
            data = self._socket.recv(10_000)
            self._events += self.engine.receive(data) if data else self.engine.receive_end()
        return self._events.pop(0)

    def login(self, mechanism: str, message: bytes | None) -> Event:
        self.engine.sasl_init(mechanism, message)
        return self.next()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.parametrize("mechanism", list(SCRAM_HASHES))
def test_scram_lets_a_user_in_and_shows_that_the_server_knows_the_password(serve: Serve, mechanism: str) -> None:
    with EngineClient(serve()) as client:
        scram = ScramClient(mechanism, "alice", PASSWORD)
        challenge = client.login(mechanism, scram.first())
        assert isinstance(challenge, SaslChallengeFrame)
        client.engine.sasl_response(scram.final(challenge.challenge))
        outcome = client.next()
        assert isinstance(outcome, SaslOutcomeFrame)
        assert outcome.code == SASL_OK
        assert scram.is_server(outcome.additional_data)
        client.engine.open()
        assert isinstance(client.next(), ConnectionOpened)


@pytest.mark.parametrize("mechanism", list(SCRAM_HASHES))
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_scram_keeps_others_out(serve: Serve, mechanism: str, name: str, password: str) -> None:
    with EngineClient(serve()) as client:
        scram = ScramClient(mechanism, name, password)
        challenge = client.login(mechanism, scram.first())
        assert isinstance(challenge, SaslChallengeFrame)
        client.engine.sasl_response(scram.final(challenge.challenge))
        assert client.next() == SaslOutcomeFrame(SASL_AUTH)


def test_a_client_that_sends_nothing_with_its_choice_is_asked(serve: Serve) -> None:
    with EngineClient(serve()) as client:
        assert client.login("PLAIN", None) == SaslChallengeFrame(b"")
        client.engine.sasl_response(f"\0alice\0{PASSWORD}".encode())
        assert client.next() == SaslOutcomeFrame(SASL_OK)


def test_plain_lets_proton_in(serve: Serve) -> None:
    client = connect(serve())
    client.create_sender("orders").send(proton.Message(body=1))
    assert client.create_receiver("orders").receive(TIMEOUT_S).body == 1
    client.close()


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_plain_keeps_others_out_and_says_so_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, name: str, password: str
) -> None:
    broker = serve()
    with pytest.raises(ConnectionException):
        connect(broker, name, password)
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [each for each in said if each.endswith(f"login with PLAIN is refused: wrong name or password: {name}")]
    assert all("wrong" not in each.partition("wrong name")[2] for each in said)
    connect(broker).close()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"alice\0pencil",
        b"\0alice\0pencil\0",
        b"other\0alice\0pencil",
        b"\0\xff\0pencil",
        b"\0alice\0\xff",
        b"\0\0",
        b"\0alice\0\x07",
    ],
)
def test_a_message_of_plain_that_is_none_is_refused(serve: Serve, message: bytes) -> None:
    with EngineClient(serve()) as client:
        assert client.login("PLAIN", message) == SaslOutcomeFrame(SASL_AUTH)


def test_where_there_are_users_nobody_comes_without_a_name(serve: Serve) -> None:
    broker = serve()
    with EngineClient(broker) as client:
        assert client.mechanisms == ALL
    with pytest.raises(ConnectionException):
        broker.connect()


def test_anonymous_is_a_user_where_it_is_switched_on(serve: Serve, users: UsersOfTest) -> None:
    broker = serve(anonymous=True)
    with EngineClient(broker) as client:
        assert client.mechanisms == (*ALL, "ANONYMOUS")
    with pytest.raises(ConnectionException):
        broker.connect()
    users.add("anonymous", {}, password=False)
    client = broker.connect()
    with pytest.raises(LinkDetached, match="user anonymous may not send orders"):
        client.create_sender("orders")
    client.close()


def test_plain_is_offered_over_tls_and_to_this_machine_alone(users: UsersOfTest) -> None:
    with ThreadPoolExecutor() as hashing:

        def offered(*, loopback: bool, tls: bool, name: str = "") -> tuple[str, ...]:
            peer = Peer("192.0.2.1:1", loopback, tls, name)
            return Login(UsersFile(users.path), peer, hashing, anonymous=False).mechanisms

        assert offered(loopback=False, tls=False) == ("SCRAM-SHA-512", "SCRAM-SHA-256")
        assert offered(loopback=True, tls=False) == offered(loopback=False, tls=True) == ALL
        assert offered(loopback=False, tls=True, name="alice") == ("EXTERNAL", *ALL)


def test_users_are_read_again_when_their_file_changes(serve: Serve, users: UsersOfTest) -> None:
    broker = serve()
    with pytest.raises(ConnectionException):
        connect(broker, "bob")
    users.add("bob")
    client = connect(broker, "bob")
    users.remove("bob")
    with pytest.raises(ConnectionException):
        connect(broker, "bob")
    with pytest.raises(ConnectionException, match="user bob was removed"):
        client.create_sender("orders")


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 2}'])
def test_while_the_file_is_damaged_nobody_logs_in(serve: Serve, users: UsersOfTest, damage: str) -> None:
    broker = serve()
    client = connect(broker)
    good = users.path.read_text()
    users.path.write_text(damage)
    with EngineClient(broker) as other:
        assert other.login("PLAIN", f"\0alice\0{PASSWORD}".encode()) == SaslOutcomeFrame(SASL_SYS_TEMP)
    with pytest.raises(LinkDetached, match=r"nothing is allowed now: .* is no file of users"):
        client.create_sender("orders")
    users.path.write_text(good)
    client.create_sender("orders", name="again").send(proton.Message(body=1))
    client.close()


def test_a_file_that_others_may_read_is_refused(serve: Serve, users: UsersOfTest) -> None:
    broker = serve()
    users.path.chmod(0o640)
    with pytest.raises(ConnectionException):
        connect(broker)
    with pytest.raises(ConfigError, match=r"`chmod 600 .*users.json` mends that"):
        serve()
    users.path.chmod(0o600)
    connect(broker).close()


def test_a_server_without_its_file_of_users_does_not_start(serve: Serve, users: UsersOfTest) -> None:
    users.path.unlink()
    with pytest.raises(ConfigError, match=r"`kafka-journal users add --file .* NAME` makes it"):
        serve()


def test_a_frame_that_is_too_large_ends_a_login(serve: Serve) -> None:
    broker = serve()
    with EngineClient(broker) as client:
        assert client.login("PLAIN", bytes(5000)) == SaslOutcomeFrame(3)
    connect(broker).close()


def test_what_comes_before_the_answer_to_a_login_is_bounded(serve: Serve) -> None:
    host, port = serve().url.removeprefix("amqp://").split(":")
    init = frame(0, SaslInitFrame("PLAIN", f"\0alice\0{PASSWORD}".encode()).encoded(), kind=1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as raw:
        raw.sendall(SASL_HEADER + init + bytes(5000))
        received = b""
        while piece := raw.recv(1000):
            received += piece
    assert received.endswith(frame(0, SaslOutcomeFrame(3).encoded(), kind=1))


@pytest.mark.parametrize("begun", [b"", SASL_HEADER, SASL_HEADER[:3]])
def test_a_client_that_says_nothing_more_is_left(serve: Serve, begun: bytes) -> None:
    host, port = serve(amqp={"handshake_ms": 50}).url.removeprefix("amqp://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as raw:
        raw.sendall(begun)
        try:
            while raw.recv(1000):
                pass
        except ConnectionResetError:
            pass


def test_a_step_of_scram_too_many_is_refused(serve: Serve) -> None:
    with EngineClient(serve()) as client:
        challenge = client.login("SCRAM-SHA-256", ScramClient("SCRAM-SHA-256", "alice", PASSWORD).first())
        assert isinstance(challenge, SaslChallengeFrame)
        client.engine.sasl_response(ScramClient("SCRAM-SHA-256", "alice", PASSWORD).first())
        assert client.next() == SaslOutcomeFrame(SASL_AUTH)
