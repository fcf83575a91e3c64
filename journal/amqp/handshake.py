"""The beginning of a connection: protocol headers, and SASL before AMQP.

A server with mechanisms requires SASL. The engine carries the mechanism's bytes and computes nothing: the caller is
told `SaslInitFrame` and `SaslResponseFrame`, and answers with challenges and an outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from journal.amqp.conditions import FRAMING_ERROR, NOT_ALLOWED
from journal.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame, header_fault, performative_in
from journal.amqp.output import Output
from journal.amqp.transport_types import (
    SaslChallengeFrame,
    SaslInitFrame,
    SaslMechanismsFrame,
    SaslOutcomeFrame,
    SaslPerformative,
    SaslResponseFrame,
)
from journal.errors import AmqpPeerError, StateError

SASL_OK, SASL_AUTH, SASL_SYS, SASL_SYS_PERM, SASL_SYS_TEMP = range(5)
"""Codes of a SASL outcome: welcome, wrong credentials, and failures of the server."""


class Layer(Enum):
    """The header or frame that the peer must send next."""

    SASL_HEADER = auto()
    SASL_STEP = auto()
    """A frame of SASL."""
    SASL_ANSWER = auto()
    """Nothing before our caller answers a step of SASL."""
    AMQP_HEADER = auto()
    AMQP = auto()


class Handshake:
    """Headers and SASL of one connection, up to the first frame of AMQP."""

    def __init__(self, output: Output, *, server: bool, sasl: bool, mechanisms: Sequence[str]) -> None:
        self.output = output
        self.server = server
        self.mechanisms = tuple(mechanisms)
        self.layer = Layer.SASL_HEADER if sasl else Layer.AMQP_HEADER
        self.chosen: str | None = None
        """The mechanism that the client has chosen."""
        self.sent_headers: list[bytes] = []
        if not server:
            self.send_header()

    def send_header(self) -> None:
        """Sends the header of this layer unless it is sent."""
        header = SASL_HEADER if self.layer is not Layer.AMQP_HEADER else AMQP_HEADER
        if header not in self.sent_headers:
            self.sent_headers.append(header)
            self.output.pieces.append(header)

    def take_header(self, received: bytes) -> None:
        """Eight bytes have come where a header is expected. Another header than expected is answered with ours."""
        self.send_header()
        expected = SASL_HEADER if self.layer is Layer.SASL_HEADER else AMQP_HEADER
        if received != expected:
            raise header_fault(received)
        if expected == AMQP_HEADER:
            self.layer = Layer.AMQP
            return
        self.layer = Layer.SASL_STEP
        if self.server:
            self._send(SaslMechanismsFrame(self.mechanisms))

    def take_frame(self, data: bytes, at: int, stop: int, kind: int) -> SaslPerformative:
        """A frame has come where one of SASL is expected; the event that it is."""
        if kind != SASL_FRAME:
            raise AmqpPeerError(FRAMING_ERROR, f"a frame of type {kind} comes before SASL has ended")
        found, end = performative_in(data, at, stop)
        if end != stop:
            raise AmqpPeerError(FRAMING_ERROR, "a frame of SASL has bytes behind its performative")
        if self.server:
            return self._client_step(found)
        return self._server_step(found)

    def challenge(self, challenge: bytes) -> None:
        """The server asks the client."""
        self._answer(SaslChallengeFrame(challenge), Layer.SASL_STEP)

    def outcome(self, code: int, additional_data: bytes | None) -> None:
        """The server's verdict; after `SASL_OK` the header of AMQP is awaited."""
        self._answer(SaslOutcomeFrame(code, additional_data), Layer.AMQP_HEADER if code == SASL_OK else self.layer)

    def refuse(self, code: int) -> None:
        """The server ends SASL, whatever step it is at."""
        self._send(SaslOutcomeFrame(code))

    def init(self, mechanism: str, initial_response: bytes | None, hostname: str | None) -> None:
        """The client chooses a mechanism."""
        self._answer(SaslInitFrame(mechanism, initial_response, hostname), Layer.SASL_STEP)

    def response(self, response: bytes) -> None:
        """The client answers a challenge."""
        self._answer(SaslResponseFrame(response), Layer.SASL_STEP)

    def _client_step(self, found: object) -> SaslInitFrame | SaslResponseFrame:
        started = self.chosen is not None
        if isinstance(found, SaslInitFrame) and not started:
            if found.mechanism not in self.mechanisms:
                raise AmqpPeerError(NOT_ALLOWED, f"SASL mechanism {found.mechanism} is not offered")
            self.chosen = found.mechanism
        elif not isinstance(found, SaslResponseFrame) or not started:
            raise AmqpPeerError(NOT_ALLOWED, "the client sends a frame of SASL out of turn")
        self.layer = Layer.SASL_ANSWER
        return found

    def _server_step(self, found: object) -> SaslMechanismsFrame | SaslChallengeFrame | SaslOutcomeFrame:
        if isinstance(found, SaslOutcomeFrame):
            if found.code == SASL_OK:
                self.layer = Layer.AMQP_HEADER
                self.send_header()
            else:
                self.layer = Layer.SASL_ANSWER
        elif isinstance(found, SaslMechanismsFrame | SaslChallengeFrame):
            self.layer = Layer.SASL_ANSWER
        else:
            raise AmqpPeerError(NOT_ALLOWED, "the server sends a frame of SASL out of turn")
        return found

    def _answer(self, answer: SaslPerformative, after: Layer) -> None:
        if self.layer is not Layer.SASL_ANSWER:
            raise StateError(f"SASL has no step to answer: the connection is at {self.layer.name}")
        self.layer = after
        self._send(answer)

    def _send(self, performative: SaslPerformative) -> None:
        self.output.pieces.append(frame(0, performative.encoded(), kind=SASL_FRAME))
