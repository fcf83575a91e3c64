"""Our engine and proton's, joined in memory in both directions, cut into pieces of several sizes."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from journal.amqp import AmqpSession, Connection, EngineLimits, ReceiverLink, SenderLink
from journal.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkDrained,
    LinkFlow,
    SessionBegan,
    SessionEnded,
    TransferReceived,
)
from journal.amqp.handshake import SASL_AUTH, SASL_OK
from journal.amqp.message_types import (
    AcceptedState,
    Declare,
    DeclaredState,
    ErrorCondition,
    MessageProperties,
    ModifiedState,
    RejectedState,
    ReleasedState,
    SourceTerminus,
    TargetTerminus,
    TransactionalState,
)
from journal.amqp.sections import MessageSections, encode_message
from journal.amqp.transport_types import FlowFrame, SaslInitFrame, SaslMechanismsFrame, SaslOutcomeFrame
from tests.unit.amqp.raw import RawServer, frames_of
from tests.unit.amqp.wires import ProtonPeer, exchange

cuts = pytest.mark.parametrize("cut", [1, 7, 1 << 20])


class Server:
    """A server of ours that answers everything, and keeps what it was told."""

    def __init__(self, *, limits: EngineLimits | None = None, credit: int = 100, cut: int = 1 << 30) -> None:
        self.engine = Connection.server("broker", limits=limits)
        self.peer = ProtonPeer()
        self.credit = credit
        self.cut = cut
        self.links: list[SenderLink | ReceiverLink] = []
        self.messages: dict[int, bytes] = {}
        self.told: list[Event] = []

    def connect(self) -> proton.Session:
        self.peer.connection.container = "client"
        self.peer.connection.open()
        self.peer.bind()
        session = self.peer.connection.session()
        session.open()
        return session

    def run(self) -> None:
        exchange(self.engine, self.peer, self.answer, self.cut)

    def answer(self, event: Event) -> None:
        self.told.append(event)
        if isinstance(event, ConnectionOpened):
            self.engine.open(properties={"product": "test"}, offered_capabilities=["ANONYMOUS-RELAY", "SHARED-SUBS"])
        elif isinstance(event, SessionBegan):
            event.session.begin()
        elif isinstance(event, LinkAttached):
            assert isinstance(event.link, SenderLink | ReceiverLink)
            event.link.attach(event.frame.source, event.frame.target)
            self.links.append(event.link)
            if isinstance(event.link, ReceiverLink):
                event.link.flow(self.credit)
        elif isinstance(event, TransferReceived):
            self.messages[event.delivery_id] = self.messages.get(event.delivery_id, b"") + event.payload
        elif isinstance(event, LinkDetached):
            event.link.detach(closed=event.closed)
        elif isinstance(event, SessionEnded):
            event.session.end()
        elif isinstance(event, ConnectionClosed):
            self.engine.close()

    def told_of(self, kind: type) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


@cuts
def test_proton_sends_and_hears_each_outcome(cut: int) -> None:
    server = Server(cut=cut)
    sender = server.connect().sender("s")
    sender.target.address = "q"
    sender.open()
    server.run()
    deliveries = [sender.send(proton.Message(body=f"m{each}")) for each in range(6)]
    server.run()
    (link,) = server.links
    link.settle([0, 1], AcceptedState())
    link.settle([2], RejectedState(ErrorCondition("amqp:not-found", "gone")))
    link.settle([3], ReleasedState())
    link.settle([4, 5], ModifiedState(delivery_failed=True))
    server.run()
    states = [each.remote_state for each in deliveries]
    assert (
        states
        == [proton.Delivery.ACCEPTED] * 2
        + [proton.Delivery.REJECTED, proton.Delivery.RELEASED]
        + [proton.Delivery.MODIFIED] * 2
    )
    assert deliveries[2].remote.condition.description == "gone"
    assert [MessageSections(each).body()[1] for each in server.messages.values()] == [f"m{each}" for each in range(6)]
    assert server.peer.connection.remote_properties == {"product": "test"}
    server.peer.connection.close()
    server.run()
    assert server.engine.finished
    assert server.peer.transport.condition is None


@cuts
def test_proton_receives_and_settles(cut: int) -> None:
    server = Server(cut=cut)
    receiver = server.connect().receiver("r")
    receiver.source.address = "q"
    receiver.open()
    receiver.flow(3)
    server.run()
    (link,) = server.links
    assert isinstance(link, SenderLink)
    assert link.sendable == 3
    for each in range(3):
        link.send(encode_message(f"m{each}", properties=MessageProperties(message_id=each)), context=f"c{each}")
    assert link.sendable == 0
    server.run()
    bodies = []
    for state in (proton.Delivery.ACCEPTED, proton.Delivery.RELEASED, proton.Delivery.ACCEPTED):
        delivery = receiver.current
        message = proton.Message()
        message.decode(receiver.recv(delivery.pending))
        bodies.append((message.id, message.body))
        receiver.advance()
        delivery.update(state)
        delivery.settle()
    assert bodies == [(each, f"m{each}") for each in range(3)]
    server.run()
    outcomes = {
        entry.context: (event.state, event.settled)
        for event in server.told_of(DispositionReceived)
        for entry in event.deliveries
    }
    assert outcomes == {
        "c0": (AcceptedState(), True),
        "c1": (ReleasedState(), True),
        "c2": (AcceptedState(), True),
    }


@pytest.mark.parametrize("frame_bytes_max", [512, 4096, 65536])
def test_a_message_of_many_frames_goes_both_ways(frame_bytes_max: int) -> None:
    server = Server(limits=EngineLimits(frame_bytes_max=frame_bytes_max, incoming_window=4), cut=1000)
    session = server.connect()
    sender, receiver = session.sender("s"), session.receiver("r")
    for each in (sender, receiver):
        each.open()
    receiver.flow(1)
    server.run()
    body = bytes(range(256)) * 400
    sender.send(proton.Message(body=body))
    server.run()
    assert MessageSections(server.messages[0]).body()[1] == body
    link = next(each for each in server.links if isinstance(each, SenderLink))
    link.send(server.messages[0])
    server.run()
    message = proton.Message()
    message.decode(receiver.recv(receiver.current.pending))
    assert message.body == body


def test_the_answer_to_a_drain_repeats_it() -> None:
    """ProtonJ2 takes no other flow for the answer."""
    server = RawServer().attached()
    server.frames(FlowFrame(0, 100, 0, 100, handle=1, delivery_count=0, link_credit=5, drain=True))
    assert server.sender is not None
    server.sender.drained()
    answer = frames_of(server.sent + server.engine.bytes_to_send(), FlowFrame)[-1]
    assert (answer.drain, answer.link_credit, answer.delivery_count) == (True, 0, 5)
    assert not server.sender.drain


def test_a_drain_is_answered_in_both_directions() -> None:
    server = Server(credit=10)
    session = server.connect()
    sender, receiver = session.sender("s"), session.receiver("r")
    for each in (sender, receiver):
        each.open()
    receiver.drain(5)
    server.run()
    (flow,) = server.told_of(LinkFlow)
    assert (flow.drain, flow.link.credit) == (True, 5)
    flow.link.send(encode_message("last"))
    flow.link.drained()
    server.run()
    assert (receiver.credit, receiver.drained()) == (1, 4)
    link = next(each for each in server.links if isinstance(each, ReceiverLink))
    link.flow(10, drain=True)
    server.run()
    assert sender.drained() == 10
    server.run()
    assert [event.link for event in server.told_of(LinkDrained)] == [link]
    assert link.credit == 0


def test_a_session_and_a_link_that_end_are_told_and_their_numbers_are_free_again() -> None:
    server = Server()
    session = server.connect()
    for _ in range(3):
        sender = session.sender("s")
        sender.open()
        server.run()
        sender.close()
        server.run()
        sender.free()
    assert [event.closed for event in server.told_of(LinkDetached)] == [True] * 3
    assert {link.handle for link in server.links} == {0}
    session.close()
    server.run()
    assert len(server.told_of(SessionEnded)) == 1
    session.free()
    again = server.peer.connection.session()
    again.open()
    server.run()
    channels = {event.session.channel for event in server.told_of(SessionBegan)}
    assert channels == {0}


def test_a_link_is_refused_with_a_reason() -> None:
    server = Server()

    def answer(event: Event) -> None:
        if isinstance(event, LinkAttached):
            event.link.refuse(ErrorCondition("amqp:not-found", "there is no queue nowhere"))
        elif not isinstance(event, LinkDetached):
            server.answer(event)

    sender = server.connect().sender("s")
    sender.target.address = "nowhere"
    sender.open()
    exchange(server.engine, server.peer, answer)
    assert sender.remote_condition.name == "amqp:not-found"
    assert sender.remote_target.address is None


def test_a_transaction_is_declared_and_named() -> None:
    server = Server()
    sender = server.connect().sender("control")
    sender.target.type = proton.Terminus.COORDINATOR
    sender.open()
    server.run()
    delivery = sender.send(proton.Message(body=proton.Described(proton.ulong(0x31), [None])))
    server.run()
    assert MessageSections(server.messages[0]).body()[1] == Declare()
    server.links[0].settle([0], DeclaredState(b"tx-1"))
    server.run()
    assert delivery.remote_state == 0x33
    delivery.settle()
    transacted = sender.delivery("t2")
    transacted.local.data = [b"tx-1"]
    transacted.update(0x34)
    sender.stream(encode_message("in a transaction"))
    sender.advance()
    server.run()
    assert server.told_of(TransferReceived)[-1].state == TransactionalState(b"tx-1")


# ---- our client ------------------------------------------------------------------------------------------------------


def test_our_client_sends_to_proton_and_receives_from_it() -> None:
    peer = ProtonPeer(server=True)
    peer.connection.container = "proton"
    peer.connection.open()
    peer.bind()
    engine = Connection.client("ours")
    engine.open()
    session = engine.session()
    session.begin()
    sender, receiver = session.sender("s"), session.receiver("r")
    sender.attach(SourceTerminus(), TargetTerminus("q"))
    receiver.attach(SourceTerminus("q"), TargetTerminus())
    receiver.flow(10)
    told: list[Event] = []
    exchange(engine, peer, told.append)
    peer.connection.session_head(proton.Endpoint.LOCAL_UNINIT).open()
    theirs = {}
    while (link := peer.connection.link_head(proton.Endpoint.LOCAL_UNINIT)) is not None:
        theirs[link.name] = link
        link.open()
    theirs["s"].flow(5)
    exchange(engine, peer, told.append)
    assert sender.sendable == 5
    sender.send(encode_message("hello"), context="first")
    theirs["r"].send(proton.Message(body="welcome"))
    exchange(engine, peer, told.append)
    delivery = theirs["s"].current
    message = proton.Message()
    message.decode(theirs["s"].recv(delivery.pending))
    delivery.update(proton.Delivery.ACCEPTED)
    delivery.settle()
    exchange(engine, peer, told.append)
    (disposition,) = [event for event in told if isinstance(event, DispositionReceived)]
    (transfer,) = [event for event in told if isinstance(event, TransferReceived)]
    assert message.body == "hello"
    assert disposition.deliveries[0].context == "first"
    assert MessageSections(transfer.payload).body()[1] == "welcome"
    engine.close()
    exchange(engine, peer, told.append)
    assert "PN_CONNECTION_REMOTE_CLOSE" in [name for name, _ in peer.events]


# ---- SASL ------------------------------------------------------------------------------------------------------------


@cuts
def test_proton_authenticates_with_plain(cut: int) -> None:
    engine, peer = Connection.server("broker", mechanisms=["PLAIN", "ANONYMOUS"]), ProtonPeer()
    sasl = peer.transport.sasl()
    sasl.allow_insecure_mechs = True
    sasl.allowed_mechs("PLAIN")
    peer.connection.user, peer.connection.password = "ada", "secret"
    peer.connection.open()
    peer.bind()
    seen: list[Event] = []

    def answer(event: Event) -> None:
        seen.append(event)
        if isinstance(event, SaslInitFrame):
            assert (event.mechanism, event.initial_response) == ("PLAIN", b"\0ada\0secret")
            for later in engine.sasl_outcome(SASL_OK):
                answer(later)
        elif isinstance(event, ConnectionOpened):
            engine.open()

    exchange(engine, peer, answer, cut)
    assert isinstance(seen[-1], ConnectionOpened)
    assert sasl.outcome == proton.SASL.OK


def test_a_refused_login_is_told_to_proton() -> None:
    engine, peer = Connection.server("broker", mechanisms=["ANONYMOUS"]), ProtonPeer()
    sasl = peer.transport.sasl()
    sasl.allowed_mechs("ANONYMOUS")
    peer.connection.open()
    peer.bind()
    exchange(engine, peer, lambda event: engine.sasl_outcome(SASL_AUTH) and None)
    assert sasl.outcome == proton.SASL.AUTH
    assert engine.finished


def test_our_client_authenticates_to_proton() -> None:
    peer = ProtonPeer(server=True)
    sasl = peer.transport.sasl()
    sasl.allowed_mechs("ANONYMOUS")
    peer.connection.open()
    peer.bind()
    engine = Connection.client("ours", sasl=True)
    seen: list[Event] = []

    def answer(event: Event) -> None:
        seen.append(event)
        if isinstance(event, SaslMechanismsFrame):
            assert "ANONYMOUS" in event.sasl_server_mechanisms
            engine.sasl_init("ANONYMOUS", b"me")
        elif isinstance(event, SaslOutcomeFrame):
            assert event.code == SASL_OK
            engine.open()

    exchange(engine, peer, answer)
    assert isinstance(seen[-1], ConnectionOpened)


def test_a_session_of_ours_is_begun_by_the_server_too() -> None:
    server = Server()
    server.connect()
    server.run()
    session = server.engine.session()
    session.begin()
    server.run()
    assert isinstance(session, AmqpSession)
    assert server.peer.connection.session_head(proton.Endpoint.REMOTE_ACTIVE) is not None
