"""Xids, which name a branch of a global transaction. They are checked when they are made, and wherever a caller passes
one, because nobody could settle a transaction that was prepared under an unreadable xid. The data of a PREPARE is an
xid, in the form of store.proto."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from journal.errors import XidError
from journal.v1 import store_pb2
from journal.xa.codes import XaCode

FORMAT_ID_MAX = 2**31 - 1
PART_BYTES_MAX = 64
"""The largest size of gtrid and of bqual: X/Open's MAXGTRIDSIZE and MAXBQUALSIZE."""


class Xid(NamedTuple):
    """The name of a branch of a global transaction. As a sequence it is an xid of PEP 249. Make it with `make_xid`."""

    format_id: int
    """The number of the naming scheme, 0 to 2^31 - 1."""
    gtrid: bytes
    """The global transaction, 1 to 64 bytes."""
    bqual: bytes
    """The branch, 0 to 64 bytes."""


AnyXid: TypeAlias = tuple[int, bytes | str, bytes | str]
"""An argument that is an xid: an `Xid`, or the plain (format_id, gtrid, bqual) of PEP 249."""


def make_xid(format_id: int, gtrid: bytes | str, bqual: bytes | str) -> Xid:
    """An xid; text is taken as UTF-8. Raises XidError (INVAL) for a part that is of another type, too short, too long,
    or out of range.
    """
    if not isinstance(format_id, int) or isinstance(format_id, bool):
        raise XidError(f"format_id {format_id!r} is not a number", code=XaCode.INVAL)
    if not 0 <= format_id <= FORMAT_ID_MAX:
        raise XidError(f"format_id {format_id} is not in 0 to {FORMAT_ID_MAX}", code=XaCode.INVAL)
    xid = Xid(format_id, _bytes("gtrid", gtrid), _bytes("bqual", bqual))
    if not 1 <= len(xid.gtrid) <= PART_BYTES_MAX:
        raise XidError(f"a gtrid has 1 to {PART_BYTES_MAX} bytes, not {len(xid.gtrid)}", code=XaCode.INVAL)
    if len(xid.bqual) > PART_BYTES_MAX:
        raise XidError(f"a bqual has at most {PART_BYTES_MAX} bytes, not {len(xid.bqual)}", code=XaCode.INVAL)
    return xid


def as_xid(xid: AnyXid) -> Xid:
    """The xid that a caller gives. Raises XidError (INVAL) if it is no tuple of three, and as `make_xid`."""
    if not isinstance(xid, tuple) or len(xid) != 3:
        raise XidError(f"{xid!r} is not an xid: (format_id, gtrid, bqual)", code=XaCode.INVAL)
    return make_xid(*xid)


def encode_xid(xid: Xid, prepared_ms: float = 0.0) -> bytes:
    """The data of a PREPARE: the xid, and the time of the prepare (ms since 1970, 0 if not known)."""
    message = message_of(xid)
    message.prepared = int(prepared_ms)
    return message.SerializeToString()


def decode_xid(data: bytes) -> Xid | None:
    """The xid in the data of a PREPARE; None for a transaction that was prepared without XA."""
    try:
        return xid_of(store_pb2.Xid.FromString(data))
    except (DecodeError, XidError):
        return None


def prepared_ms(data: bytes) -> int:
    """When a transaction was prepared, from the data of its PREPARE with an xid; 0 if the data have no time."""
    return store_pb2.Xid.FromString(data).prepared


def message_of(xid: Xid) -> store_pb2.Xid:
    return store_pb2.Xid(format_id=xid.format_id, gtrid=xid.gtrid, bqual=xid.bqual)


def xid_of(message: store_pb2.Xid) -> Xid:
    """The xid in a message. Raises XidError if the message is not an xid."""
    return make_xid(message.format_id, message.gtrid, message.bqual)


def text(xid: Xid) -> str:
    """The xid for people: format_id:gtrid:bqual, with unprintable bytes escaped."""
    return f"{xid.format_id}:{_printable(xid.gtrid)}:{_printable(xid.bqual)}"


def refusal(code: XaCode, xid: Xid, why: str) -> XidError:
    """The error that names the xid and says why."""
    return XidError(f"xid {text(xid)} {why}", code=code)


def _bytes(name: str, part: object) -> bytes:
    if isinstance(part, bytes):
        return part
    if not isinstance(part, str):
        raise XidError(f"{name} {part!r} is neither bytes nor text", code=XaCode.INVAL)
    try:
        return part.encode()
    except UnicodeEncodeError as error:
        raise XidError(f"{name} {part!r} cannot be UTF-8", code=XaCode.INVAL) from error


def _printable(part: bytes) -> str:
    return repr(part)[2:-1]
