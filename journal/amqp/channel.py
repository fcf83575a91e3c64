"""A session's windows, its numbers of frames and deliveries, and what is unsettled: what its links share.

Each transfer frame takes one place of a window. What the peer may send is opened again at half by the engine itself;
what may be sent to the peer is `remote_window`, which its flow frames say.
"""

from __future__ import annotations

from typing import Any

from journal.amqp.conditions import WINDOW_VIOLATION
from journal.amqp.described import Composite
from journal.amqp.limits import EngineLimits
from journal.amqp.message_types import State
from journal.amqp.output import Output
from journal.amqp.serials import MASK, distance, ranges
from journal.amqp.states import Endpoint
from journal.amqp.transport_types import BeginFrame, DispositionFrame, FlowFrame
from journal.errors import AmqpPeerError

OUTGOING_WINDOW = 0x7FFFFFFF
"""The window that we announce for what we send; it bounds nothing, because the peer's incoming window does."""


class SessionChannel(Endpoint):
    """The numbers of one session, in both directions."""

    __slots__ = (
        "channel",
        "expected_delivery_id",
        "incoming_unsettled",
        "incoming_window",
        "limits",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing_unsettled",
        "output",
        "remote_channel",
        "remote_window",
        "window_low",
        "window_was_full",
        "writing",
    )

    def __init__(self, output: Output, limits: EngineLimits, channel: int) -> None:
        super().__init__("session")
        self.output = output
        self.limits = limits
        self.channel = channel
        """The number of the channel that we send on."""
        self.remote_channel: int | None = None
        """The number of the channel that the peer sends on."""

        self.incoming_window = limits.incoming_window
        """Transfer frames that the peer may still send."""
        self.window_low = limits.incoming_window // 2
        self.next_incoming_id = 0
        """The transfer id of the first frame of the present incoming window."""
        self.expected_delivery_id: int | None = None
        """The id that the peer's next delivery must have; None before the first."""
        self.incoming_unsettled: dict[int, Any] = {}
        """The `ReceiverLink` of each unsettled delivery that was received, by delivery id."""

        self.remote_window = 0
        """Transfer frames that we may still send."""
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.outgoing_unsettled: dict[int, Any] = {}
        """The `OutgoingDelivery` of each unsettled delivery that was sent, by delivery id."""
        self.writing: Any = None
        """The `SenderLink` whose frames wait for the peer's window. Nobody else of the session sends before it."""
        self.window_was_full = False

    def write(self, performative: Composite) -> None:
        self.output.write(self.channel, performative)

    def take_begin(self, begin: BeginFrame) -> None:
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window

    def take_place(self) -> None:
        """One transfer frame has come."""
        if self.incoming_window <= 0:
            raise AmqpPeerError(WINDOW_VIOLATION, f"channel {self.channel} got a transfer beyond its incoming window")
        self.incoming_window -= 1
        if self.incoming_window <= self.window_low:
            self.send_flow()

    def send_flow(self, **link: Any) -> None:
        """Sends a flow frame, with the fields of a link if it is about one; the incoming window is whole again."""
        window = self.limits.incoming_window
        self.next_incoming_id = (self.next_incoming_id + window - self.incoming_window) & MASK
        self.incoming_window = window
        self.write(FlowFrame(self.next_incoming_id, window, self.next_outgoing_id, OUTGOING_WINDOW, **link))

    def take_flow(self, flow: FlowFrame) -> bool:
        """Takes the peer's window; true if it opens a window that was full."""
        known = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        self.remote_window = max(0, (flow.incoming_window or 0) - distance(known, self.next_outgoing_id))
        opened = self.window_was_full and self.remote_window > 0
        if opened:
            self.window_was_full = False
        return opened

    def send_disposition(self, role: bool, ids: list[int], state: State | None, settled: bool) -> None:
        """Sends one disposition for each run of consecutive ids."""
        for first, last in ranges(ids):
            self.write(DispositionFrame(role, first, last if last != first else None, settled, state))
