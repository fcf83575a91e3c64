"""Encodes messages as bytes for the journal (store.proto), and decodes them.

Hot path: most messages have a body, a priority and a timestamp besides their address. Those are put together from
parts; encoded headers and properties are kept, because most come again. protobuf's `Message` builds all other messages.
Both ways give bytes that every protobuf reader takes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from journal.errors import InvalidOperationError, RowError
from journal.process.kept import Kept
from journal.store.amqp_head import stored_values_of
from journal.store.model import DUPLICATE_ID_BYTES_MAX, PRIORITY_MAX, Message, Origin, Value
from journal.store.records import Checked, parse
from journal.v1 import store_pb2 as pb
from journal.wire.operations import varint

_ADDRESS, _BODY, _PRIORITY, _TIMESTAMP = b"\x0a", b"\x12", b"\x28", b"\x30"
_EXPIRES, _DUE, _BODY_BYTES, _AMQP = b"\x38", b"\x40", b"\x60", b"\x6a"
_INT64_MAX = 2**63 - 1
_SHORT_BODY_BYTES = 4096
_SHORT_TEXT = 64
_HEADERS, _PROPERTIES = b"\x1a", b"\x22"


class MessageFacts(NamedTuple):
    """The facts of a MESSAGE record that queues need. Times are ms since 1970; 0 means never, or at once."""

    address: str
    priority: int
    size: int
    """The bytes that the message counts in its queues: those of its record's data, and of its body in chunks."""
    timestamp: int
    expires: int
    due: int
    chunks: tuple[int, ...]
    duplicate_id: bytes


def encode_message(message: Message, *, chunks: Sequence[int] = (), body_bytes: int = 0) -> bytes:
    """The data of a MESSAGE record. For a large message, the ids of its chunks and the size of its body are given
    instead of `body`.

    Raises InvalidOperationError for a value that the record cannot hold (a priority over 9, an integer over 64 bits),
    TypeError for a time that is not an integer.
    """
    priority, timestamp, expires, due = message.priority, message.timestamp, message.expires, message.due
    if not 0 <= priority <= PRIORITY_MAX:
        raise InvalidOperationError(f"priority {priority} is not one of 0 to {PRIORITY_MAX}")
    # this raises TypeError for a value that is not an integer, even if it equals 0
    if not 0 <= timestamp | expires | due <= _INT64_MAX:
        raise InvalidOperationError(f"a time of {timestamp}, {expires}, {due} is not one in milliseconds since 1970")
    if message.origin or message.duplicate_id or chunks:
        return _encode_whole(message, chunks, body_bytes)
    body = message.body
    size = len(body)
    head = _BODY_HEADS[size] if size < _SHORT_BODY_BYTES else body_head(size)
    end = _timestamp_field(timestamp) if timestamp else b""
    if message.amqp:
        end += _AMQP + varint(len(message.amqp)) + message.amqp
    elif not (message.headers or message.properties or expires or due or body_bytes):
        return b"".join((_address_field(message.address), head, body, _PRIORITIES[priority], end))
    entries: list[bytes] = []
    if not message.amqp:
        try:
            entries = [*_entries(_HEADERS, message.headers), *_entries(_PROPERTIES, message.properties)]
        except UNUSUAL:
            return _encode_whole(message, chunks, body_bytes)
    parts = [_address_field(message.address), head, body, *entries, _PRIORITIES[priority], end]
    if expires:
        parts += (_EXPIRES, varint(expires))
    if due:
        parts += (_DUE, varint(due))
    if body_bytes:
        parts += (_BODY_BYTES, varint(body_bytes))
    return b"".join(parts)


def encode_messages(messages: Sequence[Message], body_bytes_max: int) -> list[bytes]:
    """`encode_message` for each message; the data are empty for a body over `body_bytes_max`. Raises what
    `encode_message` raises.

    Hot path: messages of one address that only have a body, a priority and a timestamp take half of the time here.
    """
    data: list[bytes] = []
    add, join = data.append, b"".join
    address: str | None = None
    start = b""
    for each in messages:
        body = each.body
        size = len(body)
        if size > body_bytes_max:
            add(b"")
            continue
        timestamp, expires, due, priority = each.timestamp, each.expires, each.due, each.priority
        if (
            each.headers
            or each.properties
            or each.amqp
            or expires
            or due
            or each.duplicate_id
            or each.origin
            or size >= _SHORT_BODY_BYTES
            or not 0 <= timestamp | expires | due <= _INT64_MAX
            or not 0 <= priority <= PRIORITY_MAX
        ):
            add(encode_message(each))
            continue
        if each.address != address:
            address = each.address
            start = _address_field(address)
        end = _PRIORITIES[priority]
        add(join((start, _BODY_HEADS[size], body, end + _timestamp_field(timestamp) if timestamp else end)))
    return data


def message_start(address: str) -> bytes:
    """The beginning of a MESSAGE record's data; the body follows. Raises InvalidOperationError."""
    return _address_field(address)


def body_head(size: int) -> bytes:
    """The bytes before a body of `size` bytes; properties follow it, in the order of their names."""
    return _BODY_HEADS[size] if size < _SHORT_BODY_BYTES else _BODY + varint(size)


def message_end(priority: int, timestamp: int) -> bytes:
    """The last bytes of the data of a message that does not expire and has no due time."""
    return _PRIORITIES[priority] + (_timestamp_field(timestamp) if timestamp else b"")


def property_entry(name: str, value: Value) -> bytes:
    """A property in the form in which a message's record has it. Raises one of `UNUSUAL` for an unusual value."""
    return _entry(_PROPERTIES, name, _PROPERTY_BYTES[type(value)](value))


def _address_field(address: str) -> bytes:
    """The encoded address. Hot path: the result is not kept, because looking it up would take as long."""
    try:
        name = address.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidOperationError(f"an address cannot hold that: {error}") from None
    size = len(name)
    return (_ADDRESS_HEADS[size] if size < _SHORT_BODY_BYTES else _ADDRESS + varint(size)) + name


@lru_cache(maxsize=16)
def _timestamp_field(timestamp: int) -> bytes:
    """The encoded timestamp. The result is kept, because many messages come in one millisecond."""
    return _TIMESTAMP + varint(timestamp)


_LENGTHS = tuple(varint(size) for size in range(_SHORT_BODY_BYTES))
_ADDRESS_HEADS = tuple(_ADDRESS + size for size in _LENGTHS)
_BODY_HEADS = tuple(_BODY + varint(size) for size in range(_SHORT_BODY_BYTES))
_PRIORITIES = tuple(_PRIORITY + varint(priority) for priority in range(PRIORITY_MAX + 1))


UNUSUAL = (KeyError, UnicodeEncodeError, OverflowError, TypeError, AttributeError)
"""Errors that `_entries` raises for unusual or wrong values. `_encode_whole` then encodes these values, or raises the
final error."""


def _entries(field: bytes, values: Mapping[str, Value]) -> Iterator[bytes]:
    """Headers or properties as elements of their map, sorted by name, so that equal maps give equal bytes."""
    for name in sorted(values):
        value = values[name]
        if type(value) is str and len(value) <= _SHORT_TEXT:
            key = (field, name, value)
            yield _text_entries.get(key) or _short_text_entry(key)
        else:
            yield _entry(field, name, _PROPERTY_BYTES[type(value)](value))


_text_entries: Kept[tuple[bytes, str, str], bytes] = Kept()
"""Makes the entries for texts. Results are kept, because most texts come again: topics, types, regions."""


def _short_text_entry(key: tuple[bytes, str, str]) -> bytes:
    field, name, text = key
    entry = _entry(field, name, _text_bytes(text))
    return _text_entries.keep(key, entry, len(name) + len(text) + len(entry))


def _entry(field: bytes, name: str, value: bytes) -> bytes:
    head = _entry_names.get(name) or _entry_name(name)
    size = len(value)
    length = _LENGTHS[size] if size < _SHORT_BODY_BYTES else varint(size)
    whole = len(head) + len(length) + size
    return b"".join((field, _LENGTHS[whole] if whole < _SHORT_BODY_BYTES else varint(whole), head, length, value))


_entry_names: Kept[str, bytes] = Kept()
"""Makes the key of a map's entry, and the tag of its value."""


def _entry_name(name: str) -> bytes:
    encoded = name.encode()
    return _entry_names.keep(name, b"\x0a" + varint(len(encoded)) + encoded + b"\x12", len(name) + len(encoded))


def _text_bytes(value: str) -> bytes:
    encoded = value.encode()
    return b"\x22" + varint(len(encoded)) + encoded


def _integer_bytes(value: int) -> bytes:
    if not -_INT64_MAX <= value <= _INT64_MAX:
        raise OverflowError
    return b"\x10" + varint(value << 1 if value >= 0 else ~(value << 1))  # zigzag encoding


_PROPERTY_BYTES: dict[type, Callable[[Any], bytes]] = {
    bool: lambda value: b"\x08\x01" if value else b"\x08\x00",
    int: _integer_bytes,
    float: lambda value: b"\x19" + struct.pack("<d", value),
    str: _text_bytes,
    bytes: lambda value: b"\x2a" + varint(len(value)) + value,
}
"""The encoders of values as a `Property`; the tags are those of store.proto."""


def _encode_whole(message: Message, chunks: Sequence[int], body_bytes: int) -> bytes:
    if len(message.duplicate_id) > DUPLICATE_ID_BYTES_MAX:
        raise InvalidOperationError(
            f"a duplicate-detection id of {len(message.duplicate_id)} bytes is over {DUPLICATE_ID_BYTES_MAX}"
        )
    with Checked("a message"):
        out = pb.Message(
            address=message.address,
            body=message.body,
            priority=message.priority,
            timestamp=message.timestamp,
            expires=message.expires,
            due=message.due,
            duplicate_id=message.duplicate_id,
            chunks=chunks,
            body_bytes=body_bytes,
            amqp=message.amqp,
        )
        if not message.amqp:
            for name, value in message.headers.items():
                _set_property(out.headers[name], value)
            for name, value in message.properties.items():
                _set_property(out.properties[name], value)
        if message.origin is not None:
            out.origin.CopyFrom(pb.Origin(**message.origin._asdict()))
        return out.SerializeToString(deterministic=True)


def _set_property(out: pb.Property, value: Value) -> None:
    match value:
        case bool():
            out.boolean = value
        case int():
            out.integer = value
        case float():
            out.real = value
        case str():
            out.text = value
        case bytes():
            out.binary = value
        case _:
            raise TypeError(f"{type(value).__name__} is not a property's type")


def _property(message: pb.Property) -> Value:
    kind = message.WhichOneof("value")
    if kind is None:
        raise RowError("a property has no value")
    value: Value = getattr(message, kind)
    return value


def _values(properties: Mapping[str, pb.Property]) -> dict[str, Value]:
    return {name: _property(value) for name, value in properties.items()}


def parse_message(data: bytes) -> pb.Message:
    """The data of a MESSAGE record as everybody sees it: one that came by AMQP gets the headers and properties that its
    bytes say. Raises protobuf's DecodeError."""
    message = pb.Message.FromString(data)
    if message.amqp:
        headers, properties = stored_values_of(message.amqp)
        for name, value in headers.items():
            _set_property(message.headers[name], value)
        for name, value in properties.items():
            _set_property(message.properties[name], value)
    return message


def decode_message(data: bytes, body: bytes | None = None) -> Message:
    """The message in a MESSAGE record. `body` is the body of a large message."""
    message = parse("a message", pb.Message.FromString, data)
    origin = message.origin
    headers, properties = (
        stored_values_of(message.amqp) if message.amqp else (_values(message.headers), _values(message.properties))
    )
    return Message(
        address=message.address,
        body=message.body if body is None else body,
        headers=headers,
        properties=properties,
        priority=message.priority,
        timestamp=message.timestamp,
        expires=message.expires,
        due=message.due,
        duplicate_id=message.duplicate_id,
        origin=Origin(origin.message, origin.address, origin.queue, origin.reason, origin.expires)
        if message.HasField("origin")
        else None,
        amqp=message.amqp,
    )


def message_facts(data: bytes) -> MessageFacts:
    """The facts of a MESSAGE record that queues need. Hot path of a load."""
    message = parse("a message", pb.Message.FromString, data)
    body_bytes = message.body_bytes
    chunks = tuple(message.chunks) if body_bytes else ()
    return MessageFacts(
        message.address,
        message.priority,
        len(data) + body_bytes,
        message.timestamp,
        message.expires,
        message.due,
        chunks,
        message.duplicate_id,
    )
