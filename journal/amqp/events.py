"""Events, which `Connection.receive` returns. Each is a tuple with names; they come in the order of their bytes.

SASL's frames are events themselves (transport_types.py): a server is told `SaslInitFrame` and `SaslResponseFrame`, a
client `SaslMechanismsFrame`, `SaslChallengeFrame` and `SaslOutcomeFrame`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from journal.amqp.links import Link
from journal.amqp.message_types import ErrorCondition, State
from journal.amqp.receiver import ReceiverLink
from journal.amqp.sender import SenderLink
from journal.amqp.session import AmqpSession
from journal.amqp.transport_types import (
    AttachFrame,
    BeginFrame,
    FlowFrame,
    OpenFrame,
    SaslPerformative,
)


class ConnectionOpened(NamedTuple):
    """The peer has opened. A server answers with `Connection.open`, or refuses with `Connection.close`."""

    frame: OpenFrame


class ConnectionClosed(NamedTuple):
    """The peer has closed. Answer with `Connection.close`, send what there is, and close the socket."""

    error: ErrorCondition | None


class ConnectionFailed(NamedTuple):
    """The engine has ended the connection, because of what the peer sent or did not send. Nothing is received any more:
    send what there is (it tells the peer why), and close the socket."""

    error: ErrorCondition


class SessionBegan(NamedTuple):
    """The peer has begun a session, or answered ours. Answer a new one with `AmqpSession.begin`."""

    session: AmqpSession
    frame: BeginFrame


class SessionEnded(NamedTuple):
    """The peer has ended a session, and all its links are gone. Answer with `AmqpSession.end` unless that came
    first."""

    session: AmqpSession
    error: ErrorCondition | None


class LinkAttached(NamedTuple):
    """The peer has attached a link, or answered ours. Answer a new one with `Link.attach`, or with `Link.refuse`.
    Credit may have come with it, so look at `SenderLink.sendable` after the answer."""

    link: Link
    frame: AttachFrame


class LinkDetached(NamedTuple):
    """The peer has detached a link; `closed` says that it is for good. Answer with `Link.detach` unless that came
    first."""

    link: Link
    closed: bool
    error: ErrorCondition | None


class LinkFailed(NamedTuple):
    """The engine has detached a link, because its peer broke a bound of the link. The peer's detach will follow."""

    link: Link
    error: ErrorCondition


class TransferReceived(NamedTuple):
    """A message, or a part of one. Parts come in order; `first` marks the first of a message, and `more` all but the
    last. An `aborted` message ends with an empty part, and whatever came of it is to be forgotten."""

    link: ReceiverLink
    delivery_id: int
    tag: bytes
    payload: bytes
    first: bool
    more: bool
    settled: bool
    """Nothing is awaited for the message; meaningful once `more` is false."""
    aborted: bool
    state: Any
    """The transfer's state: a `TransactionalState` names the transaction that the message belongs to."""
    message_format: int
    rcv_settle_mode: int | None


class LinkFlow(NamedTuple):
    """The peer has said how many messages it wants: `SenderLink.credit`. With `drain` it wants what there is now: send
    it, then call `SenderLink.drained`."""

    link: SenderLink
    drain: bool
    frame: FlowFrame


class LinkDrained(NamedTuple):
    """The peer has nothing more to send and has used up the credit of a link that was drained."""

    link: ReceiverLink


class WindowOpened(NamedTuple):
    """A session that could not send, because its peer's window was full, can send again."""

    session: AmqpSession


class DispositionReceived(NamedTuple):
    """The peer has said what became of deliveries of one link: their state, and whether it has settled them.

    For a `SenderLink` the deliveries are `OutgoingDelivery` each; for a `ReceiverLink` they are delivery ids.
    """

    link: Link
    deliveries: Sequence[Any]
    settled: bool
    state: State | None


Event = (
    SaslPerformative
    | ConnectionOpened
    | ConnectionClosed
    | ConnectionFailed
    | SessionBegan
    | SessionEnded
    | LinkAttached
    | LinkDetached
    | LinkFailed
    | TransferReceived
    | LinkFlow
    | LinkDrained
    | WindowOpened
    | DispositionReceived
)
