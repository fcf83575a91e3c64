"""The base of both kinds of link: names, handles, attach and detach, and the settlement of deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from journal.amqp.channel import SessionChannel
from journal.amqp.message_types import (
    CoordinatorTerminus,
    ErrorCondition,
    SourceTerminus,
    State,
    TargetTerminus,
)
from journal.amqp.states import Endpoint, EndpointStep
from journal.amqp.transport_types import RECEIVER, SENDER, AttachFrame, DetachFrame
from journal.errors import StateError

AnyTarget = TargetTerminus | CoordinatorTerminus


class Link(Endpoint):
    """One direction of messages between two nodes. `context` is the caller's own."""

    __slots__ = (
        "context",
        "credit",
        "delivery_count",
        "discarded",
        "handle",
        "name",
        "offered",
        "remote_handle",
        "session",
    )

    ROLE: bool
    """Our role, as attach and disposition frames say it."""

    def __init__(self, session: SessionChannel, name: str, handle: int) -> None:
        super().__init__(f"link {name!r}")
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_handle: int | None = None
        self.offered: AttachFrame | None = None
        """The peer's attach."""
        self.credit = 0
        """Messages that the sender may still send."""
        self.delivery_count = 0
        self.discarded = 0
        """Transfer frames that came after we had detached."""
        self.context: Any = None

    def attach(
        self,
        source: SourceTerminus | None,
        target: AnyTarget | None,
        *,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Answers the peer's attach, or begins one.

        The termini are those of our side, with the address of a dynamic node filled in. Settlement modes are the peer's
        unless given. No unsettled deliveries are named, so a peer that would resume some learns that there are none.
        """
        asked = self.offered
        if self.gone:
            return
        if not self.session.locally_open:
            raise StateError(f"the {self.what} cannot be attached: its session has not begun here, or has ended")
        self.step(EndpointStep.SEND_OPEN)
        self.session.write(
            AttachFrame(
                self.name,
                self.handle,
                self.ROLE,
                _chosen(snd_settle_mode, asked.snd_settle_mode if asked else None, 2),
                _chosen(rcv_settle_mode, asked.rcv_settle_mode if asked else None, 0),
                source,
                target,
                initial_delivery_count=self.delivery_count if self.ROLE == SENDER else None,
                max_message_size=self.session.limits.message_bytes_max if self.ROLE == RECEIVER else None,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )

    def refuse(self, error: ErrorCondition) -> None:
        """Answers the peer's attach with the error: an attach without termini, and a detach that says why."""
        self.attach(None, None)
        self.detach(closed=True, error=error)

    def detach(self, *, closed: bool = False, error: ErrorCondition | None = None) -> None:
        """Detaches the link, or answers the peer's detach. What is unsettled on it is forgotten."""
        if self.gone:
            return
        self.step(EndpointStep.SEND_CLOSE)
        self.credit = 0
        self.forget_unsettled()
        self.session.write(DetachFrame(self.handle, closed, error))

    def settle(self, delivery_ids: Iterable[int], state: State | None = None, *, settled: bool = True) -> None:
        """Tells the peer the state of deliveries, in one frame for each run of ids that follow one another.

        With `settled` false the state is told and the peer is expected to settle (`rcv_settle_mode` second). Deliveries
        that are settled already, or were forgotten with their link, are left out: the peer knows nothing of them.
        """
        unsettled = self.unsettled
        if settled:
            forget = unsettled.pop
            ids = [each for each in delivery_ids if forget(each, None) is not None]
        else:
            ids = [each for each in delivery_ids if each in unsettled]
        self.session.send_disposition(self.ROLE, ids, state, settled)

    @property
    def unsettled(self) -> dict[int, Any]:
        """The session's unsettled deliveries in this link's direction, by delivery id."""
        return self.session.outgoing_unsettled if self.ROLE == SENDER else self.session.incoming_unsettled

    def send_flow(self) -> None:
        """Tells the peer this side's delivery count and credit."""
        raise NotImplementedError

    def forget_unsettled(self) -> None:
        unsettled = self.unsettled
        for each in [number for number, entry in unsettled.items() if self.owner_of(entry) is self]:
            del unsettled[each]

    @staticmethod
    def owner_of(entry: Any) -> Any:
        """The link of an entry of `unsettled`."""
        return entry

    def take_attach(self, attach: AttachFrame) -> None:
        """The peer's attach has come."""
        self.step(EndpointStep.RECEIVE_OPEN)
        self.offered = attach
        self.remote_handle = attach.handle


def _chosen(given: int | None, asked: int | None, otherwise: int) -> int:
    if given is not None:
        return given
    return otherwise if asked is None else asked
