"""Transfer and disposition frames that arrive, and what is told of them. Hot path, as one client's messages are many.

The quick way reads a transfer's handle, delivery id and tag in place, and looks the rest of its fields up by their
bytes, which are the same for nearly all messages of a client. Whatever is unusual (a message of several frames, a
state, a fault) returns False before anything is changed, and goes the plain way, which decodes the frame by its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from struct import Struct
from typing import Any

from journal.amqp.conditions import (
    ERRANT_LINK,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
)
from journal.amqp.decoding import ValueReader
from journal.amqp.events import DispositionReceived, Event, LinkFailed, TransferReceived
from journal.amqp.message_types import ErrorCondition
from journal.amqp.receiver import ReceiverLink
from journal.amqp.serials import MASK, distance
from journal.amqp.session import AmqpSession
from journal.amqp.transport_types import RECEIVER, DispositionFrame, TransferFrame
from journal.amqp.values import Uint
from journal.errors import AmqpPeerError

TRANSFER_LIST8 = 0x005314C0
"""The first four bytes of a transfer whose fields are in a list of the short form, as one number."""

TAILS_MAX = 64
"""Different ends of transfers that are kept for one connection; a client uses one or two."""

TAIL_BYTES_MAX = 16

_TRANSFER_BYTES_LEAST = 24
"""A frame's body of fewer bytes goes the plain way, so that the quick one need not look for the end at each field."""

_PLAIN = TransferFrame(0, 0, b"")
_uint32 = Struct(">I").unpack_from
_new: Callable[..., Any] = tuple.__new__

Tails = dict[bytes, tuple[int, bool, int] | None]
"""Number of fields, `settled` and `message_format` of a transfer, by the bytes of its last fields; None if unusual."""


def take_transfer_quickly(
    session: AmqpSession, data: bytes, at: int, stop: int, events: list[Event], tails: Tails
) -> bool:
    """Takes a transfer whose performative begins at `at`, if it is a whole message without a state."""
    if stop - at < _TRANSFER_BYTES_LEAST:
        return False
    begin = at + 5 + data[at + 4]
    if begin > stop:
        return False
    count = data[at + 5]
    code = data[at + 6]
    if code == 0x43:
        handle = 0
        at += 7
    elif code == 0x52:
        handle = data[at + 7]
        at += 8
    elif code == 0x70:
        handle = _uint32(data, at + 7)[0]
        at += 11
    else:
        return False
    code = data[at]
    if code == 0x52:
        delivery_id = data[at + 1]
        at += 2
    elif code == 0x70:
        delivery_id = _uint32(data, at + 1)[0]
        at += 5
    elif code == 0x43:
        delivery_id = 0
        at += 1
    else:
        return False
    if data[at] != 0xA0 or delivery_id != session.expected_delivery_id:
        return False
    tail_at = at + 2 + data[at + 1]
    if tail_at > begin:
        return False
    tail = data[tail_at:begin]
    known = tails.get(tail)
    if known is None:
        known = _learn(tails, tail, count)
        if known is None:
            return False
    known_count, settled, message_format = known
    link = session.receivers.get(handle)
    window = session.incoming_window
    if (
        count != known_count
        or link is None
        or link.credit <= 0
        or link.arriving is not None
        or window <= session.window_low
    ):
        return False
    session.incoming_window = window - 1
    session.expected_delivery_id = (delivery_id + 1) & MASK
    link.credit -= 1
    link.delivery_count = (link.delivery_count + 1) & MASK
    if not settled:
        session.incoming_unsettled[delivery_id] = link
    tag, payload = data[at + 2 : tail_at], data[begin:stop]
    events.append(
        _new(
            TransferReceived,
            (link, delivery_id, tag, payload, True, False, settled, False, None, message_format, None),
        )
    )
    return True


def _learn(tails: Tails, tail: bytes, count: int) -> tuple[int, bool, int] | None:
    """The meaning of a tail, kept for the next transfer; None if the plain way must look at it."""
    if tail in tails or len(tails) >= TAILS_MAX or len(tail) > TAIL_BYTES_MAX or count < 3:
        return None
    reader = ValueReader(tail)
    try:
        values = [reader.value() for _ in range(count - 3)]
        frame = TransferFrame.of_list([Uint(0), Uint(0), b"", *values])
    except AmqpPeerError:
        return tails.setdefault(tail, None)
    plain = reader.at == len(tail) and replace(frame, message_format=None, settled=None, batchable=False) == _PLAIN
    return tails.setdefault(tail, (count, bool(frame.settled), frame.message_format or 0) if plain else None)


def take_transfer(session: AmqpSession, transfer: TransferFrame, payload: bytes, events: list[Event]) -> None:
    """Takes any transfer. Raises `AmqpPeerError` for one that the specification forbids."""
    link = session.remote_links.get(transfer.handle)
    if link is None:
        raise AmqpPeerError(UNATTACHED_HANDLE, f"a transfer names handle {transfer.handle}, which is not attached")
    if not isinstance(link, ReceiverLink):
        raise AmqpPeerError(NOT_ALLOWED, f"a transfer comes on {link.what}, whose receiver is its sender")
    if not link.locally_open and not link.discarding:
        raise AmqpPeerError(TRANSFER_LIMIT_EXCEEDED, f"a transfer comes on {link.what} before its attach is answered")
    session.take_place()
    first = link.arriving is None
    delivery_id = _delivery_id(session, link, transfer)
    more = transfer.more and not transfer.aborted
    link.arriving = delivery_id if more else None
    if link.discarding:
        link.discarded += 1
        if link.discarded > session.limits.incoming_window:
            raise AmqpPeerError(ERRANT_LINK, f"{link.what} was detached, and its sender goes on sending")
        return
    if first and not _begins(session, link, transfer, delivery_id, events):
        return
    link.arrived += len(payload)
    link.settled_so_far = link.settled_so_far or bool(transfer.settled)
    if link.arrived > session.limits.message_bytes_max:
        text = f"a message has more than {session.limits.message_bytes_max} bytes"
        fail_link(link, ErrorCondition(MESSAGE_SIZE_EXCEEDED, text), events)
        return
    settled = link.settled_so_far or transfer.aborted
    if settled:
        session.incoming_unsettled.pop(delivery_id, None)
    events.append(
        TransferReceived(
            link,
            delivery_id,
            link.tag,
            b"" if transfer.aborted else payload,
            first,
            more,
            settled,
            transfer.aborted,
            transfer.state,
            transfer.message_format or 0,
            transfer.rcv_settle_mode,
        )
    )


def _delivery_id(session: AmqpSession, link: ReceiverLink, transfer: TransferFrame) -> int:
    """The delivery that the transfer belongs to; a new one must follow the session's last."""
    given = transfer.delivery_id
    if link.arriving is not None:
        if given is not None and given != link.arriving:
            text = f"delivery {given} begins on {link.what} inside of delivery {link.arriving}"
            raise AmqpPeerError(INVALID_FIELD, text)
        return link.arriving
    if given is None or transfer.delivery_tag is None:
        raise AmqpPeerError(INVALID_FIELD, f"the first transfer of a delivery on {link.what} has no delivery-id or tag")
    expected = session.expected_delivery_id
    if expected is not None and given != expected:
        raise AmqpPeerError(INVALID_FIELD, f"delivery {given} comes where {expected} must follow")
    if len(transfer.delivery_tag) > 32:
        raise AmqpPeerError(INVALID_FIELD, f"a delivery tag has {len(transfer.delivery_tag)} bytes; 32 is the most")
    session.expected_delivery_id = (given + 1) & MASK
    return given


def _begins(
    session: AmqpSession, link: ReceiverLink, transfer: TransferFrame, delivery_id: int, events: list[Event]
) -> bool:
    """Begins a delivery; false if the link fails instead."""
    error = None
    if link.credit <= 0:
        error = ErrorCondition(TRANSFER_LIMIT_EXCEEDED, f"{link.what} has no credit for delivery {delivery_id}")
    elif transfer.resume:
        error = ErrorCondition(NOT_IMPLEMENTED, "deliveries are not resumed: the attach named none as unsettled")
    if error is not None:
        fail_link(link, error, events)
        return False
    link.credit -= 1
    link.delivery_count = (link.delivery_count + 1) & MASK
    link.tag = transfer.delivery_tag or b""
    link.arrived = 0
    link.settled_so_far = False
    session.incoming_unsettled[delivery_id] = link
    return True


def fail_link(link: ReceiverLink, error: ErrorCondition, events: list[Event]) -> None:
    """Detaches the link because its peer broke one of its bounds."""
    link.detach(closed=True, error=error)
    events.append(LinkFailed(link, error))


def take_disposition(session: AmqpSession, frame: DispositionFrame, events: list[Event]) -> None:
    """Tells of each link's deliveries in the range. Ids that are not unsettled are passed over, as they may have
    crossed with a settlement of ours."""
    ours = frame.role == RECEIVER
    unsettled = session.outgoing_unsettled if ours else session.incoming_unsettled
    last = frame.first if frame.last is None else frame.last
    length = distance(frame.first, last)
    if length < 0:
        raise AmqpPeerError(INVALID_FIELD, f"a disposition is for deliveries {frame.first} to {last}")
    numbers: Iterable[int]
    if length < len(unsettled):
        numbers = [number & MASK for number in range(frame.first, frame.first + length + 1)]
    else:
        numbers = [number for number in unsettled if 0 <= distance(frame.first, number) <= length]
    take = unsettled.pop if frame.settled else unsettled.get
    found = [(number, entry) for number in numbers if (entry := take(number, None)) is not None]
    if ours:
        for link in dict.fromkeys([entry.link for _, entry in found]):
            entries = [entry for _, entry in found if entry.link is link]
            events.append(DispositionReceived(link, entries, frame.settled, frame.state))
    else:
        for link in dict.fromkeys([entry for _, entry in found]):
            ids = [number for number, entry in found if entry is link]
            events.append(DispositionReceived(link, ids, frame.settled, frame.state))
