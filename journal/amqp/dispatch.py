"""Frames of sessions and links that arrive, each with what it changes and what is told of it."""

from __future__ import annotations

from journal.amqp.conditions import NOT_ALLOWED
from journal.amqp.described import Composite
from journal.amqp.events import Event, LinkAttached, LinkDetached, LinkDrained, LinkFlow, SessionEnded, WindowOpened
from journal.amqp.receiver import ReceiverLink
from journal.amqp.sender import SenderLink
from journal.amqp.session import AmqpSession
from journal.amqp.states import EndpointStep
from journal.amqp.transfers import take_disposition, take_transfer
from journal.amqp.transport_types import (
    AttachFrame,
    DetachFrame,
    DispositionFrame,
    EndFrame,
    FlowFrame,
    TransferFrame,
)
from journal.errors import AmqpPeerError


def take_session_frame(session: AmqpSession, found: Composite, payload: bytes, events: list[Event]) -> None:
    """A frame has come on the channel of a session. Raises `AmqpPeerError` for one that does not fit."""
    if isinstance(found, EndFrame):
        session.step(EndpointStep.RECEIVE_CLOSE)
        session.forget_links()
        events.append(SessionEnded(session, found.error))
    elif session.discarding:
        return
    elif isinstance(found, TransferFrame):
        take_transfer(session, found, payload, events)
    elif isinstance(found, FlowFrame):
        take_flow(session, found, events)
    elif isinstance(found, DispositionFrame):
        take_disposition(session, found, events)
    elif isinstance(found, AttachFrame):
        events.append(LinkAttached(session.take_attach(found), found))
    elif isinstance(found, DetachFrame):
        link = session.link_of(found.handle)
        session.take_detach(link)
        events.append(LinkDetached(link, found.closed, found.error))
    else:
        raise AmqpPeerError(NOT_ALLOWED, f"{found.NAME} comes where a frame of a session is expected")


def take_flow(session: AmqpSession, flow: FlowFrame, events: list[Event]) -> None:
    """Takes the session's window and, if the frame names a link, the link's credit."""
    if session.take_flow(flow):
        writing = session.writing
        if writing is not None:
            writing.resume_writing()
        if session.writing is None:
            events.append(WindowOpened(session))
    if flow.handle is None:
        if flow.echo and session.locally_open:
            session.send_flow()
        return
    link = session.link_of(flow.handle)
    if link.discarding:
        return
    if isinstance(link, SenderLink):
        link.take_flow(flow)
        events.append(LinkFlow(link, flow.drain, flow))
    elif isinstance(link, ReceiverLink) and link.take_flow(flow):
        events.append(LinkDrained(link))
    if flow.echo and link.locally_open:
        link.send_flow()
