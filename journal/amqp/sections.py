"""The sections of a message: where each lies, decoded only when asked for, and written anew where a broker must.

    header | delivery annotations | message annotations | properties | application properties | body … | footer

Hot path: each message passes here. A broker writes the first two anew at each delivery, and keeps the rest as it came:
`MessageSections.kept`. The body may be one or more data sections, one or more sequences, or one value; its inside is
looked at only by `body`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any

from journal.amqp.decoding import ValueReader, decode_error, skip_value
from journal.amqp.described import ANNOTATIONS, MAP, FieldType
from journal.amqp.encoding import encode_binary, encode_value
from journal.amqp.message_types import MessageHeader, MessageProperties

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)

SECTION_NAMES = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}
"""Codes of the sections by their symbols, which a sender may use in place of the codes."""

_LISTS, _MAPS, _BINARIES = b"\x45\xc0\xd0", b"\xc1\xd1", b"\xa0\xb0"
_CONSTRUCTORS = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: _BINARIES,
    SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}
"""Constructors that a section's value may have; a value section takes all."""

_SMALL_DESCRIPTOR = b"\x00\x53"
_SMALL, _LARGE = b"\xc0\xc1\xa0", b"\xd0\xd1\xb0"
"""Constructors with a size of one byte, and of four, that nearly all sections have."""

_uint32 = Struct(">I").unpack_from
_ENDLESS = 1 << 62


class MessageSections:
    """A message's bytes, and where its sections lie in them.

    Raises `AmqpPeerError` for sections that are not AMQP's, out of order, or beyond the end. `whole` false is for the
    beginning of a message that is still arriving: the body may then go beyond the end, and so may everything if
    `head_is_whole` is false.
    """

    __slots__ = ("_properties", "body_at", "head_is_whole", "kept_at", "payload", "places")

    def __init__(self, payload: bytes, *, whole: bool = True) -> None:
        self.payload = payload
        self.places: dict[int, int] = {}
        """The place of each section's value, by code; for a body of several sections, the first one's."""
        self.kept_at = 0
        """The place where the message begins without header and delivery annotations."""
        self.body_at = len(payload)
        """The place where the body's first section begins."""
        self.head_is_whole = True
        """Everything before the body is there."""
        self._properties: MessageProperties | None = None
        """The properties, once somebody has asked for them."""
        self._find_sections(payload, len(payload), whole)

    def _find_sections(self, payload: bytes, end: int, whole: bool) -> None:
        at, last = 0, HEADER - 1
        while at < end:
            begin = at
            try:
                if payload[at : at + 2] == _SMALL_DESCRIPTOR and HEADER <= payload[at + 2] <= FOOTER:
                    code, value_at = payload[at + 2], at + 3
                else:
                    code, value_at = _section_code(payload, at, end)
                if code <= last or last >= DATA:
                    _check_order(last, code)
                constructor = payload[value_at]
                if constructor in _SMALL:
                    at = value_at + 2 + payload[value_at + 1]
                elif constructor in _LARGE:
                    at = value_at + 5 + _uint32(payload, value_at + 1)[0]
                else:
                    at = skip_value(payload, value_at, _ENDLESS)
            except (IndexError, StructError):
                if whole:
                    raise decode_error("a message ends inside of a section") from None
                self.head_is_whole = last >= DATA
                return
            if code in _CONSTRUCTORS and constructor not in _CONSTRUCTORS[code]:
                raise decode_error(f"the section 0x{code:02x} of a message has a value of another type")
            if at > end:
                if whole:
                    raise decode_error(f"a message's section goes {at - end} bytes beyond its end")
                if code < DATA:
                    self.head_is_whole = False
                    return
            self.places.setdefault(code, value_at)
            if code <= DELIVERY_ANNOTATIONS:
                self.kept_at = at
            elif DATA <= code <= VALUE and last < DATA:
                self.body_at = begin
            last = code

    @property
    def kept(self) -> bytes | memoryview:
        """The message without header and delivery annotations, without a copy."""
        return memoryview(self.payload)[self.kept_at :] if self.kept_at else self.payload

    @property
    def header(self) -> MessageHeader:
        at = self.places.get(HEADER)
        if at is None:
            return NO_HEADER
        return _header_of(self.payload[at : skip_value(self.payload, at, len(self.payload))])

    @property
    def delivery_annotations(self) -> dict[Any, Any]:
        return self._map(DELIVERY_ANNOTATIONS, ANNOTATIONS)

    @property
    def message_annotations(self) -> dict[Any, Any]:
        return self._map(MESSAGE_ANNOTATIONS, ANNOTATIONS)

    @property
    def properties(self) -> MessageProperties:
        found = self._properties
        if found is None:
            at = self.places.get(PROPERTIES)
            found = self._properties = NO_PROPERTIES if at is None else MessageProperties.of_list(self._value(at))
        return found

    @property
    def application_properties(self) -> dict[Any, Any]:
        found = self._map(APPLICATION_PROPERTIES, MAP)
        if not all(type(key) is str for key in found):
            raise decode_error("application properties have a key that is no string")
        return found

    def body(self) -> tuple[int, Any]:
        """The code of the body's sections, and their values: `DATA` has bytes, `SEQUENCE` a list of lists, `VALUE` one
        value. A message without a body has the value None."""
        at, end, payload = self.body_at, len(self.payload), self.payload
        kind, values = VALUE, []
        while at < end:
            code, at = _section_code(payload, at, end)
            if code == FOOTER:
                break
            kind = code
            values.append(self._value(at))
            at = skip_value(payload, at, end)
        if kind == DATA:
            return kind, values[0] if len(values) == 1 else b"".join(values)
        return kind, values if kind == SEQUENCE else (values[0] if values else None)

    def _value(self, at: int) -> Any:
        return ValueReader(self.payload, at).value()

    def _map(self, code: int, kind: FieldType) -> dict[Any, Any]:
        at = self.places.get(code)
        if at is None:
            return {}
        found: dict[Any, Any] = self._value(at)
        return kind.convert(found) if kind.convert is not None else found


def _section_code(payload: bytes, at: int, end: int) -> tuple[int, int]:
    """The code of the section at `at`, and where its value begins."""
    if payload[at]:
        raise decode_error("a message has a section without a descriptor")
    constructor = payload[at + 1]
    if constructor == 0x53:
        code, stop = payload[at + 2], at + 3
    else:
        stop = skip_value(payload, at + 1, end)
        raw = payload[at + 1 : stop]
        code = int.from_bytes(raw[1:], "big") if constructor == 0x80 else SECTION_NAMES.get(raw[2:], 0)
    if not HEADER <= code <= FOOTER:
        raise decode_error(f"a message has a section with the descriptor {payload[at + 1 : stop].hex()}")
    return code, stop


def _check_order(last: int, code: int) -> None:
    again = last == code and code in (DATA, SEQUENCE)
    mixed = DATA <= last <= VALUE and DATA <= code <= VALUE and not again
    if (last >= code and not again) or mixed:
        raise decode_error(f"a message's section 0x{code:02x} comes behind 0x{last:02x}")


@lru_cache(maxsize=512)
def _header_of(raw: bytes) -> MessageHeader:
    """Headers are few and come again and again."""
    return MessageHeader.of_list(ValueReader(raw).value())


# ---- writing ---------------------------------------------------------------------------------------------------------

NO_HEADER = MessageHeader()
NO_PROPERTIES = MessageProperties()


@lru_cache(maxsize=512)
def encode_header(header: MessageHeader) -> bytes:
    """The header's section; nothing for one that says nothing."""
    return b"" if header == NO_HEADER else header.encoded()


def encode_head(header: MessageHeader, delivery_annotations: Mapping[Any, Any] | None = None) -> bytes:
    """The sections that a broker puts before what it has kept of a message."""
    return encode_header(header) + _section(DELIVERY_ANNOTATIONS, ANNOTATIONS, delivery_annotations)


def encode_message(
    body: object,
    *,
    header: MessageHeader = NO_HEADER,
    properties: MessageProperties = NO_PROPERTIES,
    application_properties: Mapping[str, Any] | None = None,
    message_annotations: Mapping[Any, Any] | None = None,
) -> bytes:
    """A whole message. A body of bytes is a data section, any other a value section."""
    return b"".join(
        (
            encode_header(header),
            _section(MESSAGE_ANNOTATIONS, ANNOTATIONS, message_annotations),
            b"" if properties == NO_PROPERTIES else properties.encoded(),
            _section(APPLICATION_PROPERTIES, MAP, application_properties),
            b"\x00\x53\x75" + encode_binary(body) if isinstance(body, bytes) else b"\x00\x53\x77" + encode_value(body),
        )
    )


def _section(code: int, kind: FieldType, value: Mapping[Any, Any] | None) -> bytes:
    return bytes((0x00, 0x53, code)) + kind.encode(value) if value else b""
