"""The interfaces that a connection has for its parts, and a server for its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from journal.amqp.links import Link
from journal.amqp.settings import AmqpSettings
from journal.broker.addresses import Addresses
from journal.broker.loop_calls import LoopCalls
from journal.broker.security.access import UserAccess
from journal.broker.security.security import ServerSecurity
from journal.broker.subscriptions import Subscriptions
from journal.errors import JournalError
from journal.store.pending import Accepted
from journal.store.store import MessageStore


class OpenTransactions(Protocol):
    """The transactions that a connection has open."""

    def number_of(self, transaction: bytes) -> int | None:
        """The store's number of one of them; None if there is none with that id."""

    def fail(self, transaction: bytes, text: str) -> None:
        """A message of a transaction is refused, and its client is not told: it can only be rolled back."""


class LinkOwner(Protocol):
    """The connection of a link. All calls are made in the loop's thread."""

    store: MessageStore
    settings: AmqpSettings
    addresses: Addresses
    access: UserAccess
    calls: LoopCalls
    loop: asyncio.AbstractEventLoop
    now_ms: Callable[[], int]
    container_id: str
    """The name that the client gave itself."""
    ended: bool
    may_write: bool

    @property
    def transactions(self) -> OpenTransactions: ...

    @property
    def waits_for_room(self) -> bool:
        """Whether the journal has no room. Nothing is read until it has."""

    def send_later(self, producer: Any) -> None:
        """Have `producer.send_waiting` called once all that was read is taken."""

    def do(
        self,
        operate: Callable[[], Accepted | None],
        link: Link | None = None,
        *,
        then: Callable[[], None] | None = None,
        durably: bool = False,
    ) -> None:
        """Have the store do something, as soon as it has room; `then` follows, `durably` once it is durable. An
        operation that is refused ends the link, if one is given."""

    def when_there_is_room(self, call: Callable[[], None]) -> None:
        """Call that, behind all that waits already, when the journal has room. Nothing is read until then."""

    def told(self, done: Callable[[JournalError | None], None]) -> Callable[[JournalError | None], None]:
        """A callback for a completion: `done` is called in the loop, unless the connection has ended by then. Where
        the outcome is unknown the connection ends instead, and `done` is not called."""

    def detach(self, link: Link, condition: str, text: str) -> None:
        """End a link with an error."""

    def flush_later(self) -> None:
        """Write what there is at the end of this step of the loop."""

    def wait_for(self, queue: str, consumer: Any) -> None:
        """A consumer has found too little in its queue: `consumer.pump` is called when there is more."""

    def in_flight_room(self, consumer: Any) -> int:
        """How many more messages the connection's user may be sent. Without room, `consumer.pump` is called when there
        is some."""

    def wait_no_more(self, queue: str, consumer: Any) -> None:
        """A consumer is gone."""


class ConnectionOwner(Protocol):
    """The server of a connection."""

    store: MessageStore
    settings: AmqpSettings
    addresses: Addresses
    subscriptions: Subscriptions
    calls: LoopCalls
    loop: asyncio.AbstractEventLoop
    now_ms: Callable[[], int]
    security: ServerSecurity
    container_id: str
    message_bytes_max: int

    def admit(self, connection: Any) -> None:
        """A client has connected."""

    def forget(self, connection: Any) -> None:
        """A connection has ended."""

    def claim(self, connection: Any) -> bool:
        """Whether a connection may be the only one of its container, until it ends."""

    def wait_for(self, queue: str, consumer: Any, connection: Any) -> None:
        """A consumer of a connection has found too little in its queue: `consumer.pump` is called when there is
        more."""

    def wait_no_more(self, queue: str, consumer: Any) -> None:
        """A consumer is gone."""
