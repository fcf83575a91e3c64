"""A session: begin and end, and the links that are attached to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from journal.amqp.channel import OUTGOING_WINDOW, SessionChannel
from journal.amqp.conditions import FRAMING_ERROR, HANDLE_IN_USE, RESOURCE_LIMIT_EXCEEDED, UNATTACHED_HANDLE
from journal.amqp.limits import EngineLimits
from journal.amqp.links import Link
from journal.amqp.message_types import ErrorCondition
from journal.amqp.output import Output
from journal.amqp.receiver import ReceiverLink
from journal.amqp.sender import SenderLink
from journal.amqp.states import EndpointState, EndpointStep
from journal.amqp.transport_types import RECEIVER, AttachFrame, BeginFrame, EndFrame
from journal.errors import AmqpPeerError, StateError

L = TypeVar("L", bound=Link)


class AmqpSession(SessionChannel):
    """A session of a connection. `context` is the caller's own."""

    __slots__ = ("context", "handle_max", "links", "receivers", "release", "remote_links")

    def __init__(
        self, output: Output, limits: EngineLimits, channel: int, release: Callable[[AmqpSession], None]
    ) -> None:
        """`release` is called once the session is closed in both directions."""
        super().__init__(output, limits, channel)
        self.release = release
        self.handle_max = limits.handle_max
        """The highest handle that the peer allows us, and our limits do."""
        self.links: dict[int, Link] = {}
        """Links by our handle."""
        self.remote_links: dict[int, Link] = {}
        """Links by the peer's handle."""
        self.receivers: dict[int, ReceiverLink] = {}
        """Those of the peer's handles that we receive on."""
        self.context: Any = None

    def begin(self, *, properties: Mapping[str, Any] | None = None) -> None:
        """Answers the peer's begin, or begins the session."""
        if self.gone:
            return
        self.step(EndpointStep.SEND_OPEN)
        self.write(
            BeginFrame(
                self.remote_channel,
                self.next_outgoing_id,
                self.limits.incoming_window,
                OUTGOING_WINDOW,
                self.limits.handle_max,
                properties=properties,
            )
        )

    def end(self, error: ErrorCondition | None = None) -> None:
        """Ends the session, or answers the peer's end. Its links are gone."""
        if self.gone:
            return
        self.step(EndpointStep.SEND_CLOSE)
        self.forget_links()
        self.write(EndFrame(error))
        if self.state is EndpointState.CLOSED:
            self.release(self)

    def sender(self, name: str) -> SenderLink:
        """A new link to send on; attach it with `Link.attach`."""
        return self._added(SenderLink(self, name, self._free_handle()))

    def receiver(self, name: str) -> ReceiverLink:
        """A new link to receive on; attach it with `Link.attach`."""
        return self._added(ReceiverLink(self, name, self._free_handle()))

    def take_begin(self, begin: BeginFrame) -> None:
        self.step(EndpointStep.RECEIVE_OPEN)
        super().take_begin(begin)
        self.handle_max = min(self.limits.handle_max, begin.handle_max)

    def take_attach(self, attach: AttachFrame) -> Link:
        """The link that the peer attaches: one of ours that waits for the answer, or a new one."""
        if attach.handle > self.limits.handle_max:
            raise AmqpPeerError(
                FRAMING_ERROR, f"handle {attach.handle} is above the handle-max of {self.limits.handle_max}"
            )
        if attach.handle in self.remote_links:
            raise AmqpPeerError(HANDLE_IN_USE, f"handle {attach.handle} is attached already")
        link = self._awaited(attach)
        if link is None:
            try:
                link = self.sender(attach.name) if attach.role == RECEIVER else self.receiver(attach.name)
            except StateError as error:
                raise AmqpPeerError(RESOURCE_LIMIT_EXCEEDED, str(error)) from None
        link.take_attach(attach)
        self.remote_links[attach.handle] = link
        if isinstance(link, ReceiverLink):
            self.receivers[attach.handle] = link
        return link

    def link_of(self, handle: int) -> Link:
        link = self.remote_links.get(handle)
        if link is None:
            raise AmqpPeerError(UNATTACHED_HANDLE, f"no link is attached with handle {handle}")
        return link

    def take_detach(self, link: Link) -> None:
        """The peer has detached the link, so its handle is free; ours is once we have, too."""
        link.step(EndpointStep.RECEIVE_CLOSE)
        link.credit = 0
        link.forget_unsettled()
        if self.writing is link:
            self.writing = None
        if link.remote_handle is not None:
            self.remote_links.pop(link.remote_handle, None)
            self.receivers.pop(link.remote_handle, None)

    def forget_links(self) -> None:
        for link in self.links.values():
            link.abandon()
            link.credit = 0
        self.links.clear()
        self.remote_links.clear()
        self.receivers.clear()
        self.incoming_unsettled.clear()
        self.outgoing_unsettled.clear()
        self.writing = None

    def _awaited(self, attach: AttachFrame) -> Link | None:
        """Our link of that name and of the other role, if the peer has not answered its attach."""
        for link in self.links.values():
            waits = link.state in (EndpointState.OPEN_SENT, EndpointState.CLOSED_BEFORE_ANSWER)
            if waits and link.name == attach.name and attach.role != link.ROLE:
                return link
        return None

    def _added(self, link: L) -> L:
        self.links[link.handle] = link
        return link

    def _free_handle(self) -> int:
        for handle, link in self.links.items():
            if link.state is EndpointState.CLOSED:
                del self.links[handle]
                return handle
        handle = len(self.links)
        if handle > self.handle_max:
            raise StateError(f"the session has {handle} links, as many as the peer allows")
        return handle
