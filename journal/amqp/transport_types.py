"""Described types of parts 2 and 5 of the specification: frames of connections, sessions, links, and of SASL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from journal.amqp.described import (
    BINARY,
    BOOLEAN,
    FIELDS,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    described,
    one_of,
)
from journal.amqp.message_types import DELIVERY_STATE, SOURCE, TARGET, ErrorCondition

UINT_MAX = 0xFFFFFFFF
SENDER, RECEIVER = False, True
"""The two values of a field `role`."""

UNSETTLED, SETTLED, MIXED = 0, 1, 2
"""Values of `snd_settle_mode`: how the sender sends."""

FIRST, SECOND = 0, 1
"""Values of `rcv_settle_mode`: the receiver settles by itself, or after the sender has."""

_ERROR = one_of("error", ErrorCondition)


@described(0x10, "amqp:open:list")
class OpenFrame(Composite):
    """A container introduces itself on a connection."""

    container_id: Annotated[str, STRING]
    hostname: Annotated[str | None, STRING] = None
    max_frame_size: Annotated[int, UINT] = UINT_MAX
    channel_max: Annotated[int, USHORT] = 65535
    idle_time_out: Annotated[int | None, UINT] = None
    outgoing_locales: Annotated[Sequence[str], SYMBOLS] = ()
    incoming_locales: Annotated[Sequence[str], SYMBOLS] = ()
    offered_capabilities: Annotated[Sequence[str], SYMBOLS] = ()
    desired_capabilities: Annotated[Sequence[str], SYMBOLS] = ()
    properties: Annotated[Mapping[str, Any] | None, FIELDS] = None


@described(0x11, "amqp:begin:list")
class BeginFrame(Composite):
    """A session begins."""

    remote_channel: Annotated[int | None, USHORT]
    next_outgoing_id: Annotated[int, UINT]
    incoming_window: Annotated[int, UINT]
    outgoing_window: Annotated[int, UINT]
    handle_max: Annotated[int, UINT] = UINT_MAX
    offered_capabilities: Annotated[Sequence[str], SYMBOLS] = ()
    desired_capabilities: Annotated[Sequence[str], SYMBOLS] = ()
    properties: Annotated[Mapping[str, Any] | None, FIELDS] = None


@described(0x12, "amqp:attach:list")
class AttachFrame(Composite):
    """A link is attached to a session."""

    name: Annotated[str, STRING]
    handle: Annotated[int, UINT]
    role: Annotated[bool, BOOLEAN]
    snd_settle_mode: Annotated[int, UBYTE] = MIXED
    rcv_settle_mode: Annotated[int, UBYTE] = FIRST
    source: Annotated[Any, SOURCE] = None
    target: Annotated[Any, TARGET] = None
    unsettled: Annotated[Mapping[Any, Any] | None, MAP] = None
    incomplete_unsettled: Annotated[bool, BOOLEAN] = False
    initial_delivery_count: Annotated[int | None, UINT] = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Annotated[Sequence[str], SYMBOLS] = ()
    desired_capabilities: Annotated[Sequence[str], SYMBOLS] = ()
    properties: Annotated[Mapping[str, Any] | None, FIELDS] = None


@described(0x13, "amqp:flow:list")
class FlowFrame(Composite):
    """The state of a session's windows, and of a link's credit if it names a handle."""

    next_incoming_id: Annotated[int | None, UINT] = None
    incoming_window: Annotated[int | None, UINT] = None
    next_outgoing_id: Annotated[int | None, UINT] = None
    outgoing_window: Annotated[int | None, UINT] = None
    handle: Annotated[int | None, UINT] = None
    delivery_count: Annotated[int | None, UINT] = None
    link_credit: Annotated[int | None, UINT] = None
    available: Annotated[int | None, UINT] = None
    drain: Annotated[bool, BOOLEAN] = False
    echo: Annotated[bool, BOOLEAN] = False
    properties: Annotated[Mapping[str, Any] | None, FIELDS] = None


@described(0x14, "amqp:transfer:list")
class TransferFrame(Composite):
    """A part of a message, or all of it; the message's bytes follow in the frame."""

    handle: Annotated[int, UINT]
    delivery_id: Annotated[int | None, UINT] = None
    delivery_tag: Annotated[bytes | None, BINARY] = None
    message_format: Annotated[int | None, UINT] = None
    settled: Annotated[bool | None, BOOLEAN] = None
    more: Annotated[bool, BOOLEAN] = False
    rcv_settle_mode: Annotated[int | None, UBYTE] = None
    state: Annotated[Any, DELIVERY_STATE] = None
    resume: Annotated[bool, BOOLEAN] = False
    aborted: Annotated[bool, BOOLEAN] = False
    batchable: Annotated[bool, BOOLEAN] = False


@described(0x15, "amqp:disposition:list")
class DispositionFrame(Composite):
    """State and settlement of the deliveries from `first` to `last`; `role` is the role of its sender."""

    role: Annotated[bool, BOOLEAN]
    first: Annotated[int, UINT]
    last: Annotated[int | None, UINT] = None
    settled: Annotated[bool, BOOLEAN] = False
    state: Annotated[Any, DELIVERY_STATE] = None
    batchable: Annotated[bool, BOOLEAN] = False


@described(0x16, "amqp:detach:list")
class DetachFrame(Composite):
    """A link is detached, or closed for good."""

    handle: Annotated[int, UINT]
    closed: Annotated[bool, BOOLEAN] = False
    error: Annotated[ErrorCondition | None, _ERROR] = None


@described(0x17, "amqp:end:list")
class EndFrame(Composite):
    """A session ends."""

    error: Annotated[ErrorCondition | None, _ERROR] = None


@described(0x18, "amqp:close:list")
class CloseFrame(Composite):
    """A connection closes."""

    error: Annotated[ErrorCondition | None, _ERROR] = None


@described(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanismsFrame(Composite):
    """The server names its mechanisms."""

    sasl_server_mechanisms: Annotated[Sequence[str], SYMBOLS]


@described(0x41, "amqp:sasl-init:list")
class SaslInitFrame(Composite):
    """The client chooses a mechanism."""

    mechanism: Annotated[str, SYMBOL]
    initial_response: Annotated[bytes | None, BINARY] = None
    hostname: Annotated[str | None, STRING] = None


@described(0x42, "amqp:sasl-challenge:list")
class SaslChallengeFrame(Composite):
    """The server asks, as the mechanism says."""

    challenge: Annotated[bytes, BINARY]


@described(0x43, "amqp:sasl-response:list")
class SaslResponseFrame(Composite):
    """The client answers, as the mechanism says."""

    response: Annotated[bytes, BINARY]


@described(0x44, "amqp:sasl-outcome:list")
class SaslOutcomeFrame(Composite):
    """The server's verdict."""

    code: Annotated[int, UBYTE]
    additional_data: Annotated[bytes | None, BINARY] = None


Performative = (
    OpenFrame
    | BeginFrame
    | AttachFrame
    | FlowFrame
    | TransferFrame
    | DispositionFrame
    | DetachFrame
    | EndFrame
    | CloseFrame
)
SaslPerformative = SaslMechanismsFrame | SaslInitFrame | SaslChallengeFrame | SaslResponseFrame | SaslOutcomeFrame
