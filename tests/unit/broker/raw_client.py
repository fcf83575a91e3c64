"""A client of our own engine over a plain socket. It sends what a well-behaved library would not, and as one piece."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from journal.amqp import Connection, SenderLink
from journal.amqp.events import ConnectionOpened, DispositionReceived, Event, LinkAttached, LinkFlow, SessionBegan
from journal.amqp.message_types import (
    CoordinatorTerminus,
    Declare,
    DeclaredState,
    Discharge,
    SourceTerminus,
    State,
    TargetTerminus,
    TransactionalState,
)
from journal.amqp.sections import encode_message
from journal.amqp.transport_types import SaslMechanismsFrame, SaslOutcomeFrame

T = TypeVar("T")

TIMEOUT_S = 20.0


class RawClient:
    """One connection with one session."""

    def __init__(self, url: str, container_id: str = "raw") -> None:
        host, port = url.removeprefix("amqp://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._engine = Connection.client(container_id, sasl=True)
        self._events: list[Event] = []
        self.flush()
        self.wait_for(SaslMechanismsFrame)
        self._engine.sasl_init("ANONYMOUS")
        self.flush()
        self.wait_for(SaslOutcomeFrame)
        self._engine.open()
        self.flush()
        self.wait_for(ConnectionOpened)
        self.session = self._engine.session()
        self.session.begin()
        self.flush()
        self.wait_for(SessionBegan)

    def flush(self) -> None:
        """Send everything up to now in one piece."""
        if data := self._engine.bytes_to_send():
            self._socket.sendall(data)

    def wait_for(self, kind: type[T], which: Callable[[T], bool] = lambda _: True) -> T:
        """The first event of a kind that nobody has waited for."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            for place, event in enumerate(self._events):
                if isinstance(event, kind) and which(event):
                    del self._events[place]
                    return event
            assert time.monotonic() < until, f"no {kind.__name__} has come, but {self._events}"
            data = self._socket.recv(1 << 20)
            assert data, f"the broker has closed the socket; events: {self._events}"
            self._events += self._engine.receive(data)
            self.flush()

    def sender(self, target: str | CoordinatorTerminus, name: str = "sender") -> SenderLink:
        link = self.session.sender(name)
        link.attach(SourceTerminus(), TargetTerminus(target) if isinstance(target, str) else target)
        self.flush()
        self.wait_for(LinkAttached)
        self.wait_for(LinkFlow)
        return link

    def outcomes(self, link: SenderLink, count: int) -> list[State | None]:
        """The states of this many deliveries, in the order in which they come."""
        found: list[State | None] = []
        while len(found) < count:
            event = self.wait_for(DispositionReceived, lambda each: each.link is link)
            found += [event.state] * len(event.deliveries)
        return found

    def declare(self, coordinator: SenderLink) -> TransactionalState:
        """The state that names a new transaction."""
        coordinator.send(_value(Declare()))
        self.flush()
        (state,) = self.outcomes(coordinator, 1)
        assert isinstance(state, DeclaredState)
        return TransactionalState(state.txn_id)

    def discharge(self, coordinator: SenderLink, transaction: TransactionalState, *, fail: bool) -> None:
        """The discharge goes with the next flush."""
        coordinator.send(_value(Discharge(transaction.txn_id, fail)))

    def close(self) -> None:
        self._socket.close()


def message(body: bytes) -> bytes:
    return encode_message(body)


def kinds(states: Sequence[Any]) -> list[str]:
    """The names of outcomes, those of transactions too."""
    return [type(getattr(each, "outcome", each)).__name__ for each in states]


def _value(composite: Any) -> bytes:
    """A message whose body is this value."""
    encoded: bytes = composite.encoded()
    return b"\x00\x53\x77" + encoded
