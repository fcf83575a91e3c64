"""A link that we receive messages on: its credit, and the message whose frames are arriving."""

from __future__ import annotations

from journal.amqp.channel import SessionChannel
from journal.amqp.links import Link
from journal.amqp.serials import MASK, distance
from journal.amqp.transport_types import RECEIVER, AttachFrame, FlowFrame
from journal.errors import StateError


class ReceiverLink(Link):
    """A link whose sender is the peer."""

    __slots__ = ("arrived", "arriving", "drain", "settled_so_far", "tag")

    ROLE = RECEIVER

    def __init__(self, session: SessionChannel, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.drain = False
        """We asked for what there is now, and for the credit to be used up."""
        self.arriving: int | None = None
        """The id of the delivery whose last frame has not come; None between deliveries."""
        self.tag = b""
        """The tag of that delivery."""
        self.arrived = 0
        """Bytes of that delivery that have come."""
        self.settled_so_far = False
        """A frame of that delivery was settled, so the delivery is."""

    def flow(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Lets the peer send `credit` messages from now on. With `drain` it sends what it has now and uses up the rest,
        which the event `LinkDrained` tells."""
        if self.gone:
            return
        if not self.locally_open:
            raise StateError(f"the {self.what} is not attached: its state is {self.state.name}")
        self.credit = credit
        self.drain = drain
        self.send_flow(echo=echo)

    def send_flow(self, *, echo: bool = False) -> None:
        """Tells the peer this side's delivery count and credit."""
        self.session.send_flow(
            handle=self.handle,
            delivery_count=self.delivery_count,
            link_credit=self.credit,
            drain=self.drain,
            echo=echo,
        )

    def take_attach(self, attach: AttachFrame) -> None:
        super().take_attach(attach)
        self.delivery_count = attach.initial_delivery_count or 0

    def take_flow(self, flow: FlowFrame) -> bool:
        """Takes the sender's count of deliveries; true if a drain is complete."""
        if flow.delivery_count is not None:
            ahead = distance(self.delivery_count, flow.delivery_count)
            if ahead > 0:
                self.delivery_count = flow.delivery_count & MASK
                self.credit = max(0, self.credit - ahead)
        complete = self.drain and self.credit == 0
        if complete:
            self.drain = False
        return complete
