"""The states of a connection, a session and a link: one table, as each opens and closes in both directions.

A session's open and close are its begin and end, a link's are its attach and detach.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from journal.amqp.conditions import NOT_ALLOWED
from journal.errors import AmqpPeerError, StateError


class EndpointState(Enum):
    """An endpoint's state: which opens and closes were sent and received."""

    IDLE = auto()
    OPEN_SENT = auto()
    OPEN_RECEIVED = auto()
    OPEN = auto()
    CLOSED_BEFORE_ANSWER = auto()
    """We opened and closed; the peer has answered neither."""
    CLOSED_UNANSWERED = auto()
    """The peer opened and closed; we have answered neither."""
    CLOSE_SENT = auto()
    CLOSE_RECEIVED = auto()
    CLOSED = auto()
    GONE = auto()
    """The endpoint's session or connection has ended, and the endpoint with it. Its commands do nothing: the peer's
    bytes are all taken before their events are answered, so an answer may come after the end."""


class EndpointStep(Enum):
    """A frame that opens or closes an endpoint, by direction."""

    SEND_OPEN = "open"
    RECEIVE_OPEN = "opened"
    SEND_CLOSE = "close"
    RECEIVE_CLOSE = "closed"


_S = EndpointState

TRANSITIONS: Mapping[EndpointState, Mapping[EndpointStep, EndpointState]] = {
    _S.IDLE: {EndpointStep.SEND_OPEN: _S.OPEN_SENT, EndpointStep.RECEIVE_OPEN: _S.OPEN_RECEIVED},
    _S.OPEN_SENT: {EndpointStep.RECEIVE_OPEN: _S.OPEN, EndpointStep.SEND_CLOSE: _S.CLOSED_BEFORE_ANSWER},
    _S.OPEN_RECEIVED: {EndpointStep.SEND_OPEN: _S.OPEN, EndpointStep.RECEIVE_CLOSE: _S.CLOSED_UNANSWERED},
    _S.OPEN: {EndpointStep.SEND_CLOSE: _S.CLOSE_SENT, EndpointStep.RECEIVE_CLOSE: _S.CLOSE_RECEIVED},
    _S.CLOSED_BEFORE_ANSWER: {EndpointStep.RECEIVE_OPEN: _S.CLOSE_SENT},
    _S.CLOSED_UNANSWERED: {EndpointStep.SEND_OPEN: _S.CLOSE_RECEIVED},
    _S.CLOSE_SENT: {EndpointStep.RECEIVE_CLOSE: _S.CLOSED},
    _S.CLOSE_RECEIVED: {EndpointStep.SEND_CLOSE: _S.CLOSED},
    _S.CLOSED: {},
    _S.GONE: {},
}

LOCALLY_OPEN = frozenset((_S.OPEN_SENT, _S.OPEN, _S.CLOSE_RECEIVED))
"""States in which we have opened and not closed."""

REMOTELY_OPEN = frozenset((_S.OPEN_RECEIVED, _S.OPEN, _S.CLOSE_SENT))
"""States in which the peer has opened and not closed."""

DISCARDING = frozenset((_S.CLOSED_BEFORE_ANSWER, _S.CLOSE_SENT))
"""States in which whatever the peer sends before its close is dropped."""


class Endpoint:
    """An endpoint's state, which nothing but `step` and `abandon` changes."""

    __slots__ = ("state", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.state = EndpointState.IDLE

    def step(self, step: EndpointStep) -> None:
        """Raises `StateError` for a frame of ours that does not fit, and `AmqpPeerError` for one of the peer's."""
        after = TRANSITIONS[self.state].get(step)
        if after is None:
            text = f"the {self.what} cannot be {step.value} in state {self.state.name}"
            if step in (EndpointStep.SEND_OPEN, EndpointStep.SEND_CLOSE):
                raise StateError(text)
            raise AmqpPeerError(NOT_ALLOWED, text)
        self.state = after

    def abandon(self) -> None:
        """The endpoint is gone with what held it, without a frame of its own."""
        self.state = EndpointState.GONE

    @property
    def gone(self) -> bool:
        return self.state is EndpointState.GONE

    @property
    def locally_open(self) -> bool:
        return self.state in LOCALLY_OPEN

    @property
    def remotely_open(self) -> bool:
        return self.state in REMOTELY_OPEN

    @property
    def discarding(self) -> bool:
        return self.state in DISCARDING
