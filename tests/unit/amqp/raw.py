"""A server of ours that a test speaks to in raw frames, as a peer without manners would."""

from __future__ import annotations

from struct import pack
from typing import Any, TypeVar

from journal.amqp import Connection, EngineLimits, ReceiverLink, SenderLink
from journal.amqp.described import Composite
from journal.amqp.events import ConnectionFailed, ConnectionOpened, Event, LinkAttached, SessionBegan
from journal.amqp.frames import AMQP_HEADER, frame
from journal.amqp.message_types import SourceTerminus, TargetTerminus
from journal.amqp.transport_types import (
    RECEIVER,
    SENDER,
    AttachFrame,
    BeginFrame,
    CloseFrame,
    OpenFrame,
    TransferFrame,
)

Kind = TypeVar("Kind", bound=Composite)

OPEN = OpenFrame("raw")
BEGIN = BeginFrame(None, 0, 1000, 1000)
ATTACH_SENDER = AttachFrame(
    "s", 0, SENDER, source=SourceTerminus("a"), target=TargetTerminus("q"), initial_delivery_count=0
)
ATTACH_RECEIVER = AttachFrame("r", 1, RECEIVER, source=SourceTerminus("q"), target=TargetTerminus("a"))


class RawServer:
    """A server's engine and the answers that it gave."""

    def __init__(self, limits: EngineLimits | None = None, *, credit: int = 10) -> None:
        self.engine = Connection.server("broker", limits=limits)
        self.credit = credit
        self.told: list[Event] = []
        self.sent = b""
        self.receiver: ReceiverLink | None = None
        self.sender: SenderLink | None = None

    def give(self, data: bytes) -> list[Event]:
        told = self.engine.receive(data)
        for event in told:
            self.answer(event)
        self.told += told
        self.sent += self.engine.bytes_to_send()
        return told

    def answer(self, event: Event) -> None:
        if isinstance(event, ConnectionOpened):
            self.engine.open()
        elif isinstance(event, SessionBegan):
            event.session.begin()
        elif isinstance(event, LinkAttached):
            event.link.attach(event.frame.source, event.frame.target)
            if isinstance(event.link, ReceiverLink):
                self.receiver = event.link
                event.link.flow(self.credit)
            elif isinstance(event.link, SenderLink):
                self.sender = event.link

    def frames(self, *performatives: Composite | tuple[Composite, bytes], channel: int = 0) -> list[Event]:
        """Gives frames, each a performative, or a performative and its payload."""
        parts = [each if isinstance(each, tuple) else (each, b"") for each in performatives]
        return self.give(b"".join(frame(channel, each.encoded(), payload) for each, payload in parts))

    def attached(self) -> RawServer:
        """The same server, with a session and a link in each direction."""
        self.give(AMQP_HEADER)
        self.frames(OPEN, BEGIN, ATTACH_SENDER, ATTACH_RECEIVER)
        return self

    def failure(self) -> tuple[str, str]:
        """Condition and description of the failure that the connection ended with; the peer is told the condition."""
        event = self.told[-1]
        assert isinstance(event, ConnectionFailed), self.told
        assert self.engine.finished
        return event.error.condition, event.error.description or ""


def transfer(delivery_id: int | None, **more: Any) -> TransferFrame:
    tag = None if delivery_id is None else pack(">I", delivery_id)
    return TransferFrame(more.pop("handle", 0), delivery_id, tag, 0, **more)


def closes_of(sent: bytes) -> list[CloseFrame]:
    """The close frames in what an engine sent."""
    return frames_of(sent, CloseFrame)


def frames_of(sent: bytes, kind: type[Kind]) -> list[Kind]:
    """The frames of one kind in what an engine sent, behind the protocol header."""
    from journal.amqp.decoding import ValueReader

    at, found = len(AMQP_HEADER), []
    while at < len(sent):
        size = int.from_bytes(sent[at : at + 4], "big")
        if size > 8:
            value = ValueReader(sent, at + 8, at + size).value()
            found += [value] if isinstance(value, kind) else []
        at += size
    return found
