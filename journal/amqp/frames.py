"""Frames and protocol headers: bytes around the performatives.

frame            size (4) | data offset (1, in words of 4 bytes) | type (1) | channel (2) | performative | payload
protocol header  "AMQP" | protocol id (1): 0 AMQP, 2 TLS, 3 SASL | version 1, 0, 0
"""

from __future__ import annotations

from struct import Struct

from journal.amqp.conditions import FRAMING_ERROR, NOT_IMPLEMENTED
from journal.amqp.decoding import ValueReader, decode_error
from journal.amqp.described import Composite
from journal.errors import AmqpPeerError

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
HEADER_BYTES = 8

AMQP_FRAME, SASL_FRAME = 0, 1
FRAME_HEAD = Struct(">IBBH")
FRAME_HEAD_BYTES = 8
EMPTY_FRAME = FRAME_HEAD.pack(FRAME_HEAD_BYTES, 2, AMQP_FRAME, 0)
"""A frame without a performative, which only shows that its sender is alive."""


def frame(channel: int, performative: bytes, payload: bytes | memoryview = b"", kind: int = AMQP_FRAME) -> bytes:
    size = FRAME_HEAD_BYTES + len(performative) + len(payload)
    return b"".join((FRAME_HEAD.pack(size, 2, kind, channel), performative, payload))


def frame_head(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Size, data offset, type and channel of the frame at `at`, of which eight bytes are there."""
    size, data_offset, kind, channel = FRAME_HEAD.unpack_from(data, at)
    return size, data_offset, kind, channel


def check_size(size: int, data_offset: int, bytes_max: int) -> None:
    """Raises `AmqpPeerError` if a frame's head cannot be true."""
    if size > bytes_max:
        raise AmqpPeerError(FRAMING_ERROR, f"a frame has {size} bytes; at most {bytes_max} are accepted here")
    if size < FRAME_HEAD_BYTES or data_offset < 2 or data_offset * 4 > size:
        raise AmqpPeerError(FRAMING_ERROR, f"a frame of {size} bytes begins its body at byte {data_offset * 4}")


def header_fault(received: bytes) -> AmqpPeerError:
    """The error for a protocol header that is not the expected one."""
    if received == TLS_HEADER:
        text = "the client asks for TLS inside of AMQP, which is not offered: connect to the TLS port (amqps)"
        return AmqpPeerError(NOT_IMPLEMENTED, text)
    if received == AMQP_HEADER:
        return AmqpPeerError(FRAMING_ERROR, "the peer begins without SASL, which is required here")
    if received == SASL_HEADER:
        return AmqpPeerError(FRAMING_ERROR, "the peer begins with SASL, which is not used here")
    return AmqpPeerError(FRAMING_ERROR, f"the peer begins with {received!r}: this is a port for AMQP 1.0")


def performative_in(data: bytes, at: int, stop: int) -> tuple[Composite, int]:
    """The performative at the beginning of a frame's body, and where its payload begins."""
    reader = ValueReader(data, at, stop)
    found = reader.value()
    if not isinstance(found, Composite):
        raise decode_error("a frame does not begin with a performative")
    return found, reader.at
