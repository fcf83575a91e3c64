"""A link that we send messages on. Hot path: `send` writes a message of one frame with one struct and no frame object.

A message larger than the peer's frames is sent in several, as the peer's window allows. While frames wait for the
window nothing else is sent in the session, so no more than one message waits there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Any, NamedTuple

from journal.amqp.channel import SessionChannel
from journal.amqp.frames import FRAME_HEAD_BYTES, frame
from journal.amqp.links import AnyTarget, Link
from journal.amqp.message_types import ErrorCondition, SourceTerminus, State
from journal.amqp.serials import MASK, distance
from journal.amqp.transport_types import SENDER, FlowFrame, TransferFrame
from journal.errors import StateError


class OutgoingDelivery(NamedTuple):
    """A message that was sent and is not settled."""

    delivery_id: int

    context: Any
    """The value that was given to `SenderLink.send`."""

    link: SenderLink


_HEAD = Struct(">IHHIBBBIBIHIBB")
"""A transfer frame up to its payload: size, data offset and type, channel, descriptor and list, its size and count,
then handle, delivery id, a tag of four bytes, message format 0, settled."""

_HEAD_BYTES = _HEAD.size
_TRANSFER_LIST = 0x005314C0
_SETTLED = {True: 0x41, False: 0x42}
_new: Callable[..., Any] = tuple.__new__


class SenderLink(Link):
    """A link whose receiver is the peer."""

    __slots__ = ("_begun", "_early", "_first", "_more", "_rest", "drain", "unfinished")

    ROLE = SENDER

    def __init__(self, session: SessionChannel, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.drain = False
        """The peer wants what there is now, and its credit used up."""
        self.unfinished = False
        """A message was begun with `more`, and its last part is not given yet."""
        self._begun = 0
        self._early: FlowFrame | None = None
        """A flow that came before our attach, which `attach` takes."""
        self._first: TransferFrame | None = None
        self._rest = memoryview(b"")
        self._more = False

    def attach(self, source: SourceTerminus | None, target: AnyTarget | None, **more: Any) -> None:
        super().attach(source, target, **more)
        if self._early is not None:
            self.take_flow(self._early)
            self._early = None

    def detach(self, *, closed: bool = False, error: ErrorCondition | None = None) -> None:
        """Detaches the link; frames of a message that wait for the peer's window are not sent any more."""
        super().detach(closed=closed, error=error)
        self.unfinished = False
        if self.session.writing is self:
            self.session.writing = None

    @property
    def sendable(self) -> int:
        """The number of messages of one frame that can be sent now."""
        if self.session.writing is not None or self.unfinished:
            return 0
        return min(self.credit, self.session.remote_window)

    def send(
        self,
        payload: bytes,
        *,
        context: Any = None,
        settled: bool = False,
        state: State | None = None,
        message_format: int = 0,
        more: bool = False,
    ) -> int:
        """Sends a message, or with `more` its beginning, and returns its delivery id.

        Raises `StateError` unless `sendable` is positive. The delivery tag is the delivery id, in four bytes.
        """
        session = self.session
        window = session.remote_window
        if self.credit <= 0 or window <= 0 or session.writing is not None or self.unfinished:
            raise StateError(self._obstacle())
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & MASK
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & MASK
        if not settled:
            session.outgoing_unsettled[delivery_id] = _new(OutgoingDelivery, (delivery_id, context, self))
        size = len(payload) + _HEAD_BYTES
        if size > session.output.frame_bytes_max or more or state is not None or message_format:
            tag = delivery_id.to_bytes(4, "big")
            self._first = TransferFrame(self.handle, delivery_id, tag, message_format, settled, state=state)
            self._begun = delivery_id
            self._put(payload, more)
            return delivery_id
        session.remote_window = window - 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
        pieces = session.output.pieces
        pieces.append(
            _HEAD.pack(
                size,
                0x0200,
                session.channel,
                _TRANSFER_LIST,
                19,
                5,
                0x70,
                self.handle,
                0x70,
                delivery_id,
                0xA004,
                delivery_id,
                0x43,
                _SETTLED[settled],
            )
        )
        pieces.append(payload)
        if window == 1:
            session.window_was_full = True
        return delivery_id

    def send_part(self, payload: bytes, *, more: bool) -> None:
        """Sends the next part of a message that was begun with `more`; the last part has `more` false.

        Raises `StateError` while earlier parts wait for the peer's window (`can_continue`).
        """
        if not self.can_continue:
            raise StateError(self._obstacle())
        self._put(payload, more)

    @property
    def can_continue(self) -> bool:
        """The next part of a message that was begun with `more` can be sent."""
        return self.unfinished and self.session.writing is None and self.session.remote_window > 0

    def abort(self) -> None:
        """Tells the peer to forget a message that was begun with `more`. It counts as settled."""
        if not self.unfinished or self.session.writing is self:
            raise StateError(self._obstacle())
        self.unfinished = False
        self.session.outgoing_unsettled.pop(self._begun, None)
        self._write(TransferFrame(self.handle, aborted=True).encoded(), b"")

    def drained(self) -> None:
        """Says that there is no more to send now: uses up the credit, after a flow with `drain`."""
        self.delivery_count = (self.delivery_count + self.credit) & MASK
        self.credit = 0
        if self.locally_open:
            # the answer repeats the peer's `drain`: some clients take no other flow for an answer
            self.send_flow()
        self.drain = False

    def send_flow(self, **more: Any) -> None:
        """Tells the peer this side's delivery count and credit."""
        self.session.send_flow(
            handle=self.handle, delivery_count=self.delivery_count, link_credit=self.credit, drain=self.drain, **more
        )

    def take_flow(self, flow: FlowFrame) -> None:
        """The peer's credit: how far its limit is ahead of what was sent."""
        if not self.locally_open:
            self._early = flow
            return
        if flow.link_credit is not None:
            counted = 0 if flow.delivery_count is None else flow.delivery_count
            self.credit = max(0, flow.link_credit - distance(counted, self.delivery_count))
        self.drain = flow.drain

    def resume_writing(self) -> None:
        """Goes on with the frames that waited for the peer's window."""
        self._put(self._rest, self._more)

    @staticmethod
    def owner_of(entry: OutgoingDelivery) -> SenderLink:
        return entry.link

    def _put(self, payload: bytes | memoryview, more: bool) -> None:
        """Writes frames until all is written, or the peer's window is full."""
        session, rest = self.session, memoryview(payload)
        session.writing = None
        while True:
            if session.remote_window <= 0:
                session.writing, self._rest, self._more = self, rest, more
                session.window_was_full = True
                self.unfinished = True
                return
            head = self._performative(more=True)
            room = session.output.frame_bytes_max - FRAME_HEAD_BYTES - len(head)
            if len(rest) <= room and not more:
                head = self._performative(more=False)
            self._write(head, rest[:room])
            self._first = None
            rest = rest[room:]
            if not rest:
                break
        self._rest = rest
        self.unfinished = more

    def _performative(self, *, more: bool) -> bytes:
        first = self._first
        return TransferFrame(self.handle, more=more).encoded() if first is None else replace(first, more=more).encoded()

    def _write(self, performative: bytes, payload: bytes | memoryview) -> None:
        session = self.session
        session.remote_window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
        session.output.pieces.append(frame(session.channel, performative, payload))

    def _obstacle(self) -> str:
        """The reason for which nothing can be sent on the link now."""
        if not self.locally_open or not self.remotely_open:
            return f"the {self.what} is not attached: its state is {self.state.name}"
        if self.session.writing is not None or self.session.remote_window <= 0:
            return f"the {self.what} cannot send before its session's window opens: await the event WindowOpened"
        if self.unfinished:
            return f"the {self.what} has a message whose last part was not given: use send_part"
        return f"the {self.what} has no credit: await the event LinkFlow"
