"""The AMQP engine without sockets: microseconds of processor time for a message in and out, against proton's.

    python -m bench amqp_engine

in      Bytes of transfers that a client sends, received by the server's engine, and settled in ranges.
out     Messages that the server's engine sends, and the dispositions that settle them.
sections    A message's sections found, its header decoded.

Proton's classes for Python do the same in the same run, in memory too. Messages have a body of 1 KiB and come 64 at a
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import proton

from bench.rounds import Comparison, Outcome, alternate
from journal.amqp.connection import Connection
from journal.amqp.events import ConnectionOpened, Event, LinkAttached, SessionBegan
from journal.amqp.message_types import AcceptedState, MessageHeader, MessageProperties, SourceTerminus, TargetTerminus
from journal.amqp.receiver import ReceiverLink
from journal.amqp.sections import MessageSections, encode_message
from journal.amqp.sender import SenderLink

MESSAGES = 20_000
BATCH = 64
ROUNDS = 5
CREDIT = 1000
TARGET_RATIO = 2.0
ACCEPTED = AcceptedState()
PAYLOAD = encode_message(
    b"x" * 1024, header=MessageHeader(durable=True), properties=MessageProperties(message_id="message-1", to="queue")
)
"""A message as clients send it."""


def answered(engine: Connection, events: list[Event]) -> None:
    """The least that a server answers, for links of both directions."""
    for event in events:
        if isinstance(event, ConnectionOpened):
            engine.open()
        elif isinstance(event, SessionBegan):
            event.session.begin()
        elif isinstance(event, LinkAttached):
            event.link.attach(event.frame.source, event.frame.target)
            engine.context = event.link
            if isinstance(event.link, ReceiverLink):
                event.link.flow(CREDIT)


def joined(*, client_sends: bool) -> tuple[Connection, Connection, SenderLink | ReceiverLink, Connection]:
    """A client and a server with one link between them: client, server, the client's link, the server."""
    client, server = Connection.client("client"), Connection.server("server")
    client.open()
    session = client.session()
    session.begin()
    link: SenderLink | ReceiverLink = session.sender("link") if client_sends else session.receiver("link")
    link.attach(SourceTerminus("queue"), TargetTerminus("queue"))
    for _ in range(4):
        answered(server, server.receive(client.bytes_to_send()))
        client.receive(server.bytes_to_send())
    return client, server, link, server


def microseconds_in() -> float:
    """Processor time of the server's engine for a message that it receives and accepts."""
    client, server, link, _ = joined(client_sends=True)
    assert isinstance(link, SenderLink)
    spent = 0.0
    for _ in range(MESSAGES // BATCH):
        for _ in range(BATCH):
            link.send(PAYLOAD)
        data = client.bytes_to_send()
        began = time.process_time()
        events = server.receive(data)
        received = server.context
        received.settle([event.delivery_id for event in events], ACCEPTED)
        if received.credit < CREDIT // 2:
            received.flow(CREDIT)
        data = server.bytes_to_send()
        spent += time.process_time() - began
        client.receive(data)
    return 1e6 * spent / MESSAGES


def microseconds_out() -> float:
    """Processor time of the server's engine for a message that it sends, with its settlement."""
    client, server, link, _ = joined(client_sends=False)
    assert isinstance(link, ReceiverLink)
    spent = 0.0
    sender = server.context
    for _ in range(MESSAGES // BATCH):
        link.flow(CREDIT)
        data = client.bytes_to_send()
        began = time.process_time()
        server.receive(data)
        for _ in range(BATCH):
            sender.send(PAYLOAD)
        data = server.bytes_to_send()
        spent += time.process_time() - began
        events = client.receive(data)
        link.settle([event.delivery_id for event in events], ACCEPTED)
        data = client.bytes_to_send()
        began = time.process_time()
        server.receive(data)
        spent += time.process_time() - began
    return 1e6 * spent / MESSAGES


def microseconds_of_sections() -> float:
    began = time.process_time()
    for _ in range(MESSAGES):
        sections = MessageSections(PAYLOAD)
        assert sections.header.durable
        assert len(sections.kept) > 1024
    return 1e6 * (time.process_time() - began) / MESSAGES


# ---- proton ----------------------------------------------------------------------------------------------------------


class ProtonEnd:
    """One end of a proton connection in memory."""

    def __init__(self, *, server: bool) -> None:
        self.connection = proton.Connection()
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self.transport.bind(self.connection)

    def take(self) -> bytes:
        found = []
        while (pending := self.transport.pending()) > 0:
            found.append(bytes(self.transport.peek(pending)))
            self.transport.pop(pending)
        return b"".join(found)

    def give(self, data: bytes) -> list[proton.Delivery]:
        """Takes bytes, and returns the deliveries that they tell of."""
        view = memoryview(data)
        deliveries = []
        while view:
            room = self.transport.capacity()
            self.transport.push(bytes(view[:room]))
            view = view[room:]
            while (event := self.collector.peek()) is not None:
                if event.type is proton.Event.DELIVERY:
                    deliveries.append(event.delivery)
                self.collector.pop()
        return deliveries


def proton_joined() -> tuple[ProtonEnd, ProtonEnd, proton.Sender, proton.Receiver]:
    """Two ends with one link: the client's sender and the server's receiver."""
    client, server = ProtonEnd(server=False), ProtonEnd(server=True)
    client.connection.container, server.connection.container = "client", "server"
    for end in (client, server):
        end.connection.open()
    session = client.connection.session()
    session.open()
    sender = session.sender("link")
    sender.open()
    for _ in range(4):
        server.give(client.take())
        other = server.connection.session_head(proton.Endpoint.LOCAL_UNINIT)
        if other is not None:
            other.open()
        link = server.connection.link_head(proton.Endpoint.LOCAL_UNINIT)
        if link is not None:
            link.open()
            link.flow(CREDIT)
        client.give(server.take())
    return client, server, sender, server.connection.link_head(0)


def proton_microseconds(*, measure_in: bool) -> float:
    """Processor time of proton's classes for a message received and accepted, or sent and settled."""
    client, server, sender, receiver = proton_joined()
    spent_out = spent_in = 0.0
    for number in range(MESSAGES // BATCH):
        began = time.process_time()
        for each in range(BATCH):
            delivery = sender.delivery(f"{number}-{each}")
            sender.stream(PAYLOAD)
            sender.advance()
        data = client.take()
        spent_out += time.process_time() - began
        began = time.process_time()
        for delivery in server.give(data):
            receiver.recv(delivery.pending)
            receiver.advance()
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()
        if receiver.credit < CREDIT // 2:
            receiver.flow(CREDIT - receiver.credit)
        data = server.take()
        spent_in += time.process_time() - began
        began = time.process_time()
        for delivery in client.give(data):
            delivery.settle()
        spent_out += time.process_time() - began
    return 1e6 * (spent_in if measure_in else spent_out) / MESSAGES


def run(quick: bool) -> Outcome:
    outcome = Outcome()
    ways: tuple[tuple[str, Callable[[], float], bool], ...] = (
        ("in", microseconds_in, True),
        ("out", microseconds_out, False),
    )
    for name, ours, measure_in in ways:
        pairs = alternate(
            2 if quick else ROUNDS, ours, lambda way=measure_in: proton_microseconds(measure_in=way), what=name
        )
        outcome.comparisons.append(Comparison(name, "us", *pairs, target=TARGET_RATIO, less_is_better=True))
    outcome.figures["sections_us"] = round(min(microseconds_of_sections() for _ in range(ROUNDS)), 2)
    return outcome
