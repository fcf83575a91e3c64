"""One AMQP 1.0 connection: bytes in and events out, commands in and bytes out.

It has no socket, clock, thread or store.

    events = connection.receive(data)       # told in order; the caller answers with commands
    socket.write(connection.bytes_to_send())
    deadline = connection.tick(now)         # idle time-outs, by the caller's clock

Whatever a peer does wrong ends the connection with the specification's condition: the close is among the bytes to send,
and `ConnectionFailed` is the last event. `receive` raises nothing for it. All bytes are taken before their events are
answered, so an endpoint may be gone when its answer comes; commands to it then do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Self

from journal.amqp.conditions import FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED
from journal.amqp.dispatch import take_session_frame
from journal.amqp.events import ConnectionClosed, ConnectionFailed, ConnectionOpened, Event, SessionBegan
from journal.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    check_size,
    frame_head,
    performative_in,
)
from journal.amqp.handshake import SASL_SYS_PERM, Handshake, Layer
from journal.amqp.idle import IdleClock
from journal.amqp.limits import FRAME_BYTES_LEAST, EngineLimits
from journal.amqp.message_types import ErrorCondition
from journal.amqp.output import Output
from journal.amqp.session import AmqpSession
from journal.amqp.session_table import SessionTable
from journal.amqp.states import Endpoint, EndpointState, EndpointStep
from journal.amqp.transfers import TRANSFER_LIST8, Tails, take_transfer_quickly
from journal.amqp.transport_types import BeginFrame, CloseFrame, OpenFrame
from journal.errors import AmqpPeerError, StateError

_HEAD_AND_PREFIX = Struct(">IHHI")
"""Size, data offset and type, channel, and the first four bytes of the body."""
_HEAD_AND_PREFIX_BYTES = 12
_PLAIN_HEAD = 0x0200
"""The data offset and type of nearly all frames: no extended header, AMQP."""


class Connection(Endpoint):
    """The engine of one connection, for a server or a client. `context` is the caller's own."""

    def __init__(self, container_id: str, *, server: bool, sasl: bool, mechanisms: Sequence[str], limits: EngineLimits):
        super().__init__("connection")
        self.container_id = container_id
        self.limits = limits
        self.context: Any = None
        self.peer: OpenFrame | None = None
        """The peer's open; None before it has come."""
        self.finished = False
        """Nothing is received any more: send what there is, and close the socket."""
        self._output = Output()
        self._handshake = Handshake(self._output, server=server, sasl=sasl, mechanisms=mechanisms)
        self._idle = IdleClock(limits.idle_timeout_ms)
        self._waiting = bytearray()
        self._needed = HEADER_BYTES
        """Bytes that must wait before a header or frame is whole."""
        self._received = 0
        """The number of times that bytes came."""
        self._sessions = SessionTable(self._output, limits)
        self._tails: Tails = {}

    @classmethod
    def server(cls, container_id: str, mechanisms: Sequence[str] = (), limits: EngineLimits | None = None) -> Self:
        """The engine of a connection that a client has made. With SASL mechanisms, SASL is required."""
        return cls(
            container_id, server=True, sasl=bool(mechanisms), mechanisms=mechanisms, limits=limits or EngineLimits()
        )

    @classmethod
    def client(cls, container_id: str, *, sasl: bool = False, limits: EngineLimits | None = None) -> Self:
        """The engine of a connection that this program makes."""
        return cls(container_id, server=False, sasl=sasl, mechanisms=(), limits=limits or EngineLimits())

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def bytes_to_send(self) -> bytes:
        """Takes all that is to be sent, in order. Call it after each `receive`, `tick` and command."""
        return self._output.take()

    def receive(self, data: bytes) -> list[Event]:
        """Takes bytes of the peer, cut anywhere, and returns what they say."""
        events: list[Event] = []
        if self.finished:
            return events
        if data:
            self._received += 1
        waiting = self._waiting
        if waiting or self._handshake.layer is Layer.SASL_ANSWER:
            waiting += data
            if len(waiting) < self._needed:
                return events
            data = bytes(waiting)
            waiting.clear()
        try:
            at = self._parse(data, events)
            self._keep(data, at)
        except AmqpPeerError as error:
            self._fail(ErrorCondition(error.condition, str(error)), events)
        return events

    def receive_end(self) -> list[Event]:
        """The socket has ended. Without a close before it, that is a failure."""
        events: list[Event] = []
        if not self.finished and self.state is not EndpointState.CLOSED:
            self._output.pieces.clear()
            self.finished = True
            events.append(ConnectionFailed(ErrorCondition(FRAMING_ERROR, "the peer's socket ended without a close")))
        return events

    def tick(self, now: float) -> tuple[float | None, list[Event]]:
        """Sends an empty frame if the peer would otherwise think us dead, and ends a connection whose peer is silent.

        `now` is in seconds, of a clock that never steps. Returns when to call it again, None for never, and events.
        """
        events: list[Event] = []
        if self.finished or self._handshake.layer is not Layer.AMQP:
            return None, events
        remote_ms = self.peer.idle_time_out if self.peer is not None and self.locally_open else None
        verdict = self._idle.look(now, self._received, self._output.taken, remote_ms)
        if verdict.silent:
            text = f"nothing came for {2 * self.limits.idle_timeout_ms} ms"
            self._fail(ErrorCondition(RESOURCE_LIMIT_EXCEEDED, text), events)
            return None, events
        if verdict.send and not self._output.pieces:
            self._output.pieces.append(EMPTY_FRAME)
        return verdict.again, events

    # ---- SASL ----------------------------------------------------------------------------------------------------

    def sasl_challenge(self, challenge: bytes) -> None:
        """A server asks its client, as the mechanism says."""
        self._handshake.challenge(challenge)

    def sasl_outcome(self, code: int, additional_data: bytes | None = None) -> list[Event]:
        """A server's verdict (handshake.py has the codes). Returns the events of bytes that came before it."""
        if self.finished:
            return []
        self._handshake.outcome(code, additional_data)
        if code:
            self.finished = True
            return []
        return self.receive(b"")

    def sasl_init(self, mechanism: str, initial_response: bytes | None = None, hostname: str | None = None) -> None:
        """A client chooses a mechanism, after `SaslMechanismsFrame`."""
        self._handshake.init(mechanism, initial_response, hostname)

    def sasl_response(self, response: bytes) -> None:
        """A client answers `SaslChallengeFrame`."""
        self._handshake.response(response)

    # ---- commands ------------------------------------------------------------------------------------------------

    def open(
        self,
        *,
        hostname: str | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Opens the connection, or answers the peer's open."""
        if self.finished:
            return
        if self._handshake.layer not in (Layer.AMQP_HEADER, Layer.AMQP):
            raise StateError("the connection cannot be opened before SASL has ended")
        self.step(EndpointStep.SEND_OPEN)
        self._output.write(
            0,
            OpenFrame(
                self.container_id,
                hostname,
                self.limits.frame_bytes_max,
                self.limits.channel_max,
                self.limits.idle_timeout_ms or None,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            ),
        )

    def close(self, error: ErrorCondition | None = None) -> None:
        """Closes the connection, or answers the peer's close. All sessions are gone."""
        if self.finished:
            return
        if self.state in (EndpointState.IDLE, EndpointState.OPEN_RECEIVED, EndpointState.CLOSED_UNANSWERED):
            self.open()
        self.step(EndpointStep.SEND_CLOSE)
        self._output.write(0, CloseFrame(error))
        self._sessions.drop()
        if self.state is EndpointState.CLOSED:
            self.finished = True

    def session(self) -> AmqpSession:
        """A new session; begin it with `AmqpSession.begin`."""
        return self._sessions.new()

    # ---- frames --------------------------------------------------------------------------------------------------

    def _parse(self, data: bytes, events: list[Event]) -> int:
        """Takes all whole frames; returns where the first begins that is not whole."""
        at, end = 0, len(data)
        while self._handshake.layer is not Layer.AMQP:
            before = at
            at = self._parse_handshake(data, at, events)
            if at == before:
                return at
        sessions, tails, unpack = self._sessions.by_remote_channel, self._tails, _HEAD_AND_PREFIX.unpack_from
        bytes_max = self.limits.frame_bytes_max
        while end - at >= _HEAD_AND_PREFIX_BYTES:
            size, head, channel, prefix = unpack(data, at)
            stop = at + size
            if head == _PLAIN_HEAD and prefix == TRANSFER_LIST8 and size <= bytes_max and stop <= end:
                session = sessions.get(channel)
                if session is not None and take_transfer_quickly(session, data, at + 8, stop, events, tails):
                    at = stop
                    continue
            stop = self._parse_frame(data, at, end, events)
            if stop == at:
                return at
            if self.finished:
                return end
            at = stop
        return self._parse_frame(data, at, end, events) if end - at >= FRAME_HEAD_BYTES else at

    def _parse_frame(self, data: bytes, at: int, end: int, events: list[Event]) -> int:
        """Takes the frame at `at` if it is whole; returns where it ends, or `at`."""
        size, data_offset, kind, channel = frame_head(data, at)
        check_size(size, data_offset, self.limits.frame_bytes_max)
        if at + size > end:
            return at
        if kind != AMQP_FRAME:
            raise AmqpPeerError(FRAMING_ERROR, f"a frame has the type {kind}, which is not AMQP's")
        if data_offset * 4 < size:
            self._take_frame(data, at + data_offset * 4, at + size, channel, events)
        return at + size

    def _parse_handshake(self, data: bytes, at: int, events: list[Event]) -> int:
        """Takes one header or frame of SASL; returns where it ends, or `at` if it is not whole or not to be taken
        yet."""
        handshake = self._handshake
        if len(data) - at < HEADER_BYTES or handshake.layer is Layer.SASL_ANSWER:
            return at
        if handshake.layer in (Layer.SASL_HEADER, Layer.AMQP_HEADER):
            handshake.take_header(data[at : at + HEADER_BYTES])
            return at + HEADER_BYTES
        size, data_offset, kind, _ = frame_head(data, at)
        check_size(size, data_offset, self.limits.sasl_frame_bytes_max)
        if at + size > len(data):
            return at
        events.append(handshake.take_frame(data, at + data_offset * 4, at + size, kind))
        return at + size

    def _keep(self, data: bytes, at: int) -> None:
        """Keeps what is not whole, and how much more must come."""
        rest = len(data) - at
        self._needed = HEADER_BYTES
        if rest and not self.finished:
            if self._handshake.layer is Layer.SASL_ANSWER:
                if rest > self.limits.sasl_frame_bytes_max:
                    raise AmqpPeerError(RESOURCE_LIMIT_EXCEEDED, "the peer sends too much before SASL has ended")
            elif rest >= FRAME_HEAD_BYTES:
                self._needed = int.from_bytes(data[at : at + 4], "big")
            self._waiting += data[at:]

    def _take_frame(self, data: bytes, at: int, stop: int, channel: int, events: list[Event]) -> None:
        found, body = performative_in(data, at, stop)
        if isinstance(found, OpenFrame):
            self._take_open(found, events)
        elif isinstance(found, CloseFrame):
            self.step(EndpointStep.RECEIVE_CLOSE)
            self._sessions.drop()
            self.finished = self.state is EndpointState.CLOSED
            events.append(ConnectionClosed(found.error))
        elif not self.remotely_open:
            raise AmqpPeerError(NOT_ALLOWED, f"{found.NAME} comes before the open, or after the close")
        elif self.discarding:
            return
        elif isinstance(found, BeginFrame):
            events.append(SessionBegan(self._sessions.take_begin(channel, found), found))
        else:
            session = self._sessions.by_remote_channel.get(channel)
            if session is None:
                raise AmqpPeerError(NOT_ALLOWED, f"{found.NAME} comes on channel {channel}, which has no session")
            take_session_frame(session, found, data[body:stop], events)
            if not session.remotely_open:
                self._sessions.take_end(channel, session)

    def _take_open(self, found: OpenFrame, events: list[Event]) -> None:
        if found.max_frame_size < FRAME_BYTES_LEAST:
            raise AmqpPeerError(NOT_ALLOWED, f"max-frame-size is {found.max_frame_size}; AMQP has at least 512")
        self.step(EndpointStep.RECEIVE_OPEN)
        self.peer = found
        self._sessions.channel_max = min(found.channel_max, self.limits.channel_max)
        self._output.frame_bytes_max = min(found.max_frame_size, self.limits.frame_bytes_max)
        events.append(ConnectionOpened(found))

    # ---- ends ----------------------------------------------------------------------------------------------------

    def _fail(self, error: ErrorCondition, events: list[Event]) -> None:
        """Ends the connection with the error, in the way of the layer that it is at."""
        layer = self._handshake.layer
        if layer is Layer.AMQP and self.state is not EndpointState.CLOSED:
            if not self.discarding:
                self.close(error)
        elif layer in (Layer.SASL_STEP, Layer.SASL_ANSWER) and self._handshake.server:
            self._handshake.refuse(SASL_SYS_PERM)
        self._waiting.clear()
        self._sessions.drop()
        self.finished = True
        events.append(ConnectionFailed(error))
