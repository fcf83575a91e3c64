"""Addresses and queues as AMQP names them, and their creation on demand.

    ADDRESS             an anycast queue of that name; with the capability `topic`, a multicast address
    ADDRESS::QUEUE      one queue of an address
    queue://ADDRESS     the same as the capability `queue`; topic://ADDRESS as `topic`
    temporary/NAME      a queue that goes with its link, and is never in the journal

All temporary queues are of one address, because addresses are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from journal.amqp.conditions import INVALID_FIELD, NOT_ALLOWED, NOT_FOUND
from journal.amqp.settings import AmqpSettings
from journal.broker.security.access import UserAccess
from journal.broker.security.permissions import Action
from journal.errors import (
    AddressExistsError,
    AmqpPeerError,
    InvalidOperationError,
    QueueExistsError,
    QueueMissingError,
)
from journal.sources.filters import Filters
from journal.store.model import Message, QueueConfig, Routing
from journal.store.pending import Accepted
from journal.store.store import MessageStore

_SEPARATOR = "::"
_TEMPORARY = "temporary"
_PREFIXES = {"queue://": Routing.ANYCAST, "topic://": Routing.MULTICAST}
_CAPABILITIES = {
    "queue": Routing.ANYCAST,
    "temporary-queue": Routing.ANYCAST,
    "topic": Routing.MULTICAST,
    "temporary-topic": Routing.MULTICAST,
}


class Place(NamedTuple):
    """The address, and perhaps the queue, that a terminus names."""

    address: str
    queue: str = ""
    """One queue of the address; empty if the address itself is meant."""

    routing: Routing | None = None
    """The routing that the link's capability or the prefix names; None if neither names any."""


def place_of(text: str, capabilities: Collection[str]) -> Place:
    """The place that a terminus names. Raises AmqpPeerError for a name without an address."""
    routing = next((_CAPABILITIES[each] for each in capabilities if each in _CAPABILITIES), None)
    for prefix, said in _PREFIXES.items():
        if text.startswith(prefix):
            text, routing = text.removeprefix(prefix), said
    if text.startswith(f"{_TEMPORARY}/"):
        return Place(_TEMPORARY, text, routing)
    address, separator, queue = text.partition(_SEPARATOR)
    if not address or (separator and not queue):
        raise AmqpPeerError(INVALID_FIELD, f"{text!r} names no address: expected ADDRESS or ADDRESS::QUEUE")
    return Place(address, queue, routing)


class Addresses:
    """The addresses and queues of one activation's store, as links ask for them. The event loop's thread uses it."""

    def __init__(self, store: MessageStore, settings: AmqpSettings) -> None:
        self._store = store
        self._settings = settings
        self._filters = Filters(store)
        self.not_from: dict[str, str] = {}
        """Containers whose messages a queue does not take (no-local), by queue."""
        self._turn = 0
        """Counts messages, so that anycast queues of one address get them in turn."""

    def target(self, place: Place, access: UserAccess) -> None:
        """Make sure that a link may send to a place. Raises AmqpPeerError for what does not exist and may not be
        made. `access` is the link's, here and below."""
        if place.queue:
            self._queue_of(place)
        elif not self._exists(place.address):
            self._make(place.address, place.routing or Routing.ANYCAST, access)

    def source(self, place: Place, access: UserAccess) -> str:
        """The queue that a link receives from. Raises AmqpPeerError."""
        if not place.queue:
            try:
                self._store.queue(place.address)
            except QueueMissingError:
                self._make(place.address, Routing.ANYCAST, access)
                return place.address
            place = place._replace(queue=place.address)
        return self._queue_of(place).name

    def queues_for(self, message: Message, queue: str = "", container_id: str = "") -> list[QueueConfig]:
        """The queues that take a message of a container: every multicast one, and the anycast ones in turn, if their
        filters select it; or the one `queue` that its sender names. Raises AmqpPeerError for what is gone."""
        if queue:
            return [self._queue_of(Place(message.address, queue))]
        ways = self._store.ways_in([message.address]).get(message.address)
        if ways is None:
            raise AmqpPeerError(NOT_FOUND, f"there is no address {message.address}")
        theirs = [each for each in ways if self.not_from.get(each.name) != container_id]
        taking = [each for each in theirs if not each.filter or self._filters.takes(message, each)]
        found = [each for each in taking if each.routing is Routing.MULTICAST]
        anycast = [each for each in taking if each.routing is Routing.ANYCAST]
        if anycast:
            self._turn += 1
            found.append(anycast[self._turn % len(anycast)])
        return found

    def remembers_ids(self, address: str) -> bool:
        """Whether what is sent twice to an existing address is stored once."""
        return self._store.address(address).duplicate_window > 0

    def temporary(self, access: UserAccess) -> str:
        """A new queue that is never in the journal; its owner destroys it. Raises AmqpPeerError."""
        access.require(Action.CREATE, _TEMPORARY)
        name = f"{_TEMPORARY}/{uuid.uuid4().hex}"
        self.make(QueueConfig(name, _TEMPORARY, durable=False), access)
        return name

    def multicast(self, address: str, access: UserAccess) -> None:
        """Make sure that an address exists; a new one gets no queue. Raises AmqpPeerError."""
        if not self._exists(address):
            self._make(address, Routing.MULTICAST, access)

    def make(self, queue: QueueConfig, access: UserAccess) -> Accepted:
        """Make a queue that a link asks for, and its address if that does not exist. Raises AmqpPeerError."""
        self.multicast(queue.address, access)
        try:
            return self._store.create_queue(queue)
        except QueueExistsError as error:
            raise AmqpPeerError(NOT_ALLOWED, str(error)) from None
        except InvalidOperationError as error:
            raise AmqpPeerError(INVALID_FIELD, str(error)) from None

    def _queue_of(self, place: Place) -> QueueConfig:
        try:
            config = self._store.queue(place.queue).config
        except QueueMissingError:
            raise AmqpPeerError(NOT_FOUND, f"address {place.address} has no queue {place.queue}") from None
        if config.address != place.address:
            raise AmqpPeerError(
                NOT_FOUND, f"queue {place.queue} is not of address {place.address}, but of {config.address}"
            )
        return config

    def _exists(self, address: str) -> bool:
        return address in self._store.ways_in([address])

    def _make(self, address: str, routing: Routing, access: UserAccess) -> None:
        if not self._settings.auto_create:
            raise AmqpPeerError(NOT_FOUND, f"there is no address {address}, and none is made on demand (auto_create)")
        access.require(Action.CREATE, address)
        try:
            with suppress(AddressExistsError):
                self._store.create_address(address, self._settings.duplicate_window)
        except InvalidOperationError as error:
            raise AmqpPeerError(INVALID_FIELD, str(error)) from None
        if routing is Routing.ANYCAST:
            self._created(QueueConfig(address, address))

    def _created(self, queue: QueueConfig) -> None:
        try:
            with suppress(QueueExistsError):
                self._store.create_queue(queue)
        except InvalidOperationError as error:
            raise AmqpPeerError(INVALID_FIELD, str(error)) from None
