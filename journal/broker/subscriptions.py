"""Subscriptions: the queues of multicast addresses, as receiving links ask for them.

    a plain link                    a queue of its own, which goes with the link
    durable, link NAME              the queue CLIENT.NAME: a detach keeps it, a close destroys it (JMS: unsubscribe)
    capability shared               links NAME, NAME|2, … of a client receive from one queue
    capabilities shared, global     those of all clients: the queue NAME:global
    shared and not durable          the queue …:shared-volatile, which goes with its last link
    a null source                   the durable subscription of that name as it is, so that it can be closed

CLIENT is the connection's container id. The queues have the names that Artemis gives them. A subscription's selector is
its queue's filter. One that is asked for with another selector or address is made anew, as JMS says.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from journal.amqp import SenderLink
from journal.amqp.conditions import INVALID_FIELD, NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED, RESOURCE_LOCKED
from journal.amqp.filters import selector_filter, source_filters
from journal.amqp.links import Link
from journal.amqp.message_types import SourceTerminus
from journal.broker.addresses import Addresses, place_of
from journal.broker.security.access import UserAccess
from journal.broker.security.permissions import Action
from journal.broker.selection import selection
from journal.errors import AmqpPeerError, FullError, JournalError, QueueInDoubtError, QueueMissingError
from journal.store.model import QueueConfig, Routing
from journal.store.pending import Accepted
from journal.store.store import MessageStore

_SHARED, _GLOBAL = "shared", "global"
_VOLATILE = ":shared-volatile"
_DELIMITER = "|"
_UNSETTLED_STATE = 2
_AGAIN_S = 1.0
"""How soon it is tried again to destroy queues that transactions hold messages of."""

log = logging.getLogger(__name__)


class Subscription(NamedTuple):
    """The subscription that a link asks for."""

    queue: QueueConfig
    shared: bool
    answer: SourceTerminus
    """The source for the answer to the attach: only filters that are in force are in it."""
    not_from: str = ""
    """The container whose messages the subscription does not get; empty for none."""


class Subscriptions:
    """The subscriptions of one activation's store, and the links that use them. The event loop's thread uses it."""

    def __init__(self, store: MessageStore, addresses: Addresses, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._addresses = addresses
        self._loop = loop
        self._in_doubt: set[str] = set()
        """Queues that go with links that are gone, once no transaction holds messages of them."""
        self._links: dict[str, dict[Link, Subscription]] = {}
        """The links of each subscription's queue, and what each has asked for."""

    def of_link(self, link: SenderLink, container_id: str, source: SourceTerminus | None) -> Subscription | None:
        """The subscription that a link asks for; None if it receives from a queue. Raises AmqpPeerError."""
        if source is None:
            return self._kept(link, container_id)
        place = place_of(source.address, source.capabilities) if source.address else None
        shared = _SHARED in source.capabilities
        if place is None or place.queue or not (shared or source.durable or place.routing is Routing.MULTICAST):
            return None
        if place.routing is Routing.ANYCAST:
            return None
        filters = source_filters(source.filter)
        if filters.no_local and (shared or source.durable):
            raise AmqpPeerError(NOT_IMPLEMENTED, "no-local is in force on subscriptions of one link alone")
        if filters.selector:
            selection(filters.selector)  # it is checked
        queue = QueueConfig(
            _private_name(place.address),
            place.address,
            Routing.MULTICAST,
            filter=filters.selector or "",
            durable=bool(source.durable),
        )
        if shared or source.durable:
            queue = _named(queue, link.name, container_id, shared=shared, of_all=_GLOBAL in source.capabilities)
        answer = replace(source, filter=filters.in_force or None)
        return Subscription(queue, shared, answer, container_id if filters.no_local else "")

    def _kept(self, link: SenderLink, container_id: str) -> Subscription:
        """The durable subscription that a link with a null source names."""
        of_all = link.offered is not None and _GLOBAL in link.offered.desired_capabilities
        wanted = _named(QueueConfig("", "", Routing.MULTICAST), link.name, container_id, shared=of_all, of_all=of_all)
        queue = None
        with suppress(QueueMissingError):
            queue = self._store.queue(wanted.name).config
        if queue is None or not _is_subscription(queue, wanted):
            raise AmqpPeerError(NOT_FOUND, f"there is no durable subscription {wanted.name}")
        filters: dict[Any, Any] = selector_filter(queue.filter) if queue.filter else {}
        answer = SourceTerminus(
            queue.address,
            _UNSETTLED_STATE,
            "never",
            distribution_mode="copy",
            filter=filters or None,
            capabilities=("topic", _SHARED, _GLOBAL) if of_all else ("topic",),
        )
        return Subscription(queue, False, answer)

    def join(self, wanted: Subscription, link: Link, access: UserAccess) -> Accepted | None:
        """Let a link use its subscription, which is made if it does not exist, and made anew if it has another address
        or filter. Returns what was written; None for nothing. Raises AmqpPeerError if other links are in the way."""
        queue, links = wanted.queue, self._links.get(wanted.queue.name, {})
        if links and not (wanted.shared and all(each.shared for each in links.values())):
            raise AmqpPeerError(RESOURCE_LOCKED, f"subscription {queue.name} is in use")
        written = None
        try:
            found = self._store.queue(queue.name).config
        except QueueMissingError:
            written = self._addresses.make(queue, access)
        else:
            if not _is_subscription(found, queue):
                raise AmqpPeerError(NOT_ALLOWED, f"queue {queue.name} exists, and is no such subscription")
            if (found.address, found.filter) != (queue.address, queue.filter):
                if links:
                    raise AmqpPeerError(RESOURCE_LOCKED, f"subscription {queue.name} is in use with another selector")
                access.require(Action.CONSUME, found.address)  # its messages are lost
                self._addresses.multicast(queue.address, access)  # raises while the old subscription is still there
                try:
                    self._store.destroy_queue(queue.name)
                except QueueInDoubtError as error:
                    raise AmqpPeerError(RESOURCE_LOCKED, str(error)) from None
                written = self._addresses.make(queue, access)
        self._links.setdefault(queue.name, {})[link] = wanted
        if wanted.not_from:
            self._addresses.not_from[queue.name] = wanted.not_from
        return written

    def leave(self, queue: str, link: Link, *, closed: bool) -> bool:
        """A link is gone: whether its queue goes with it. A queue of no subscription always does."""
        links = self._links.get(queue)
        if links is None:
            return True
        left = links.pop(link)
        if links:
            return False
        del self._links[queue]
        self._addresses.not_from.pop(queue, None)
        return closed or not left.queue.durable

    def destroy(self, queue: str) -> Accepted | None:
        """Destroy a queue that goes with a link. One that is not durable is destroyed later if transactions hold
        messages of it. Returns what was written; None for nothing."""
        try:
            return self._store.destroy_queue(queue)
        except QueueMissingError:
            return None
        except QueueInDoubtError:
            if self._store.queue(queue).config.durable:
                raise
            self._destroy_later(queue)
            return None

    def _destroy_later(self, queue: str) -> None:
        if not self._in_doubt:
            self._loop.call_later(_AGAIN_S, self._destroy_in_doubt)
        self._in_doubt.add(queue)

    def _destroy_in_doubt(self) -> None:
        queues, self._in_doubt = self._in_doubt, set()
        for queue in queues - self._links.keys():
            try:
                self.destroy(queue)
            except FullError:
                self._destroy_later(queue)
            except JournalError as error:
                log.info("queue %s goes with this activation: %s", queue, error)


def _is_subscription(found: QueueConfig, wanted: QueueConfig) -> bool:
    """Whether a queue of the name that a subscription's queue has is that queue, perhaps with another address or
    filter."""
    return (found.routing, found.durable, found.client_id, found.subscription) == (
        wanted.routing,
        wanted.durable,
        wanted.client_id,
        wanted.subscription,
    )


def _named(queue: QueueConfig, link_name: str, container_id: str, *, shared: bool, of_all: bool) -> QueueConfig:
    """The queue of a subscription that its link names."""
    name = link_name.partition(_DELIMITER)[0] if shared else link_name
    if of_all and not shared:
        raise AmqpPeerError(INVALID_FIELD, "only a shared subscription is global")
    if shared and not queue.durable:
        name += _VOLATILE
    if of_all:
        return replace(queue, name=f"{name}:{_GLOBAL}")
    return replace(queue, name=f"{container_id}.{name}", client_id=container_id, subscription=name)


def _private_name(address: str) -> str:
    return f"{address}/{uuid.uuid4().hex}"
