"""A fast way from a stored message's bytes to Kafka headers, without parsing the message with protobuf.

protobuf writes fields in order: address, body, headers, properties, then the rest. If a message has something
unexpected (a large body, a long header, bytes as a header, fields that say where it came from), the caller parses it.
Both ways give the same headers (tests/properties prove it).

Hot path: a message with one property takes as long as parsing alone would.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from journal.process.kept import Kept
from journal.routing.headers import MESSAGE_ID_HEADER, HeaderNames, of_fields, pack_long
from journal.routing.outcomes import Header
from journal.store.model import PRIORITY_MAX
from journal.v1 import store_pb2 as pb

_BODY, _HEADERS, _PROPERTIES = 0x12, 0x1A, 0x22
_MORE = 0x80
"""The bit in a length's first byte that says that another byte follows."""
_NAME, _VALUE = 0x0A, 0x12
_TEXT_HEADS = tuple(bytes((_VALUE, size + 2, 0x22, size)) for size in range(_MORE))
"""The bytes before a text in its map entry, by the text's length."""
_BOOLEAN, _INTEGER, _REAL = 0x08, 0x10, 0x19
_REAL_BYTES, _INTEGER_BYTES_MAX = 8, 9
_NO_PRIORITY = b"\x28\x00"
"""The encoded priority 0. The store writes it, but protobuf would leave it out."""
_TAIL_BYTES_MAX = 64
_TAIL_KEPT_BYTES = 512
"""Bytes in memory that the headers of a tail take."""

Quick = tuple[bytes, list[Header]]
"""A message's body, and its headers without the hop counts."""

_Name = tuple[str, str, str]
"""A text by which the entries are sorted; the name; and the Kafka name of a text with this name."""


class QuickHeaders:
    """Makes Kafka headers from a message's bytes. The names that it makes are kept, as in `HeaderNames`."""

    def __init__(self, names: HeaderNames) -> None:
        self._names = names
        self._of_headers: Kept[bytes, _Name | None] = Kept()
        self._of_properties: Kept[bytes, _Name | None] = Kept()
        self._tails: Kept[bytes, list[Header] | None] = Kept()
        """Headers made from the fields after the properties. Many messages of one millisecond share the same bytes
        there."""

    def encoded(self, destination: Header, message_id: int, data: bytes, at: int) -> Quick | None:
        """A message's body, and its headers as `HeaderNames.encoded` gives them; None if the message must be parsed.

        `destination` is the header of its address, which ends at index `at` of `data`.
        """
        body = b""
        entries: list[Header] = []
        order: list[str] = []
        of_properties, of_headers, last, in_order = self._of_properties, self._of_headers, "", True
        try:
            if data[at] == _BODY:
                size = data[at + 1]
                at += 2
                if size >= _MORE:
                    if data[at] >= _MORE:
                        return None
                    size += (data[at] - 1) << 7
                    at += 1
                body = data[at : at + size]
                at += size
            while (place := data[at]) == _PROPERTIES or place == _HEADERS:
                size = data[at + 1]
                at += 2
                end = at + size
                value_at = at + 2 + data[at + 1]
                raw = data[at:value_at]
                try:
                    name = (of_properties if place == _PROPERTIES else of_headers)[raw]
                except KeyError:
                    name = self._named(raw, place)
                at = value_at + 4
                if size >= _MORE or name is None or at > end:
                    return None
                if data[value_at:at] == _TEXT_HEADS[end - at]:
                    text = data[at:end]
                    if not text.isascii():
                        text.decode()
                    entries.append((name[2], text))
                else:
                    header = self._typed(name[1], place, data[value_at:end])
                    if header is None:
                        return None
                    entries.append(header)
                if name[0] <= last:
                    in_order = False
                last = name[0]
                order.append(last)
                at = end
        except (IndexError, UnicodeDecodeError):
            return None
        tail = data[at:]
        try:
            fields = self._tails[tail]
        except KeyError:
            fields = self._of_tail(tail)
        if fields is None:
            return None
        if not in_order:
            if len(set(order)) < len(order):
                return None
            entries = [entry for _, entry in sorted(zip(order, entries, strict=True))]
        return body, [destination, (MESSAGE_ID_HEADER, pack_long(message_id)), *fields, *entries]

    def _named(self, raw: bytes, place: int) -> _Name | None:
        """The name in a raw entry; None if it has no name, or its header is not sent."""
        if len(raw) < 2 or raw[0] != _NAME or len(raw) != 2 + raw[1]:
            return None
        name = raw[2:].decode()
        known = self._of_properties if place == _PROPERTIES else self._of_headers
        of_text = self._names.kafka_name(name, "text", _PLACES[place])
        return known.keep(raw, None if of_text is None else (chr(place) + name, name, of_text), 4 * len(raw))

    def _typed(self, name: str, place: int, value: bytes) -> Header | None:
        """The header of a value that is not text; None if the value has an unexpected form."""
        if value[0] != _VALUE or value[1] != len(value) - 2:
            return None
        tag, content = value[2], value[3:]
        if tag == _INTEGER:
            kind, encoded = "integer", _integer(content)
        elif tag == _BOOLEAN and content in (b"\x00", b"\x01"):
            kind, encoded = "boolean", b"true" if content[0] else b"false"
        elif tag == _REAL and len(content) == _REAL_BYTES:
            kind, encoded = "real", content[::-1]
        else:
            return None
        kafka_name = self._names.kafka_name(name, kind, _PLACES[place])
        return None if kafka_name is None or encoded is None else (kafka_name, encoded)

    def _of_tail(self, tail: bytes) -> list[Header] | None:
        """The headers of a message's last fields; None if the fields are not in order, or the message is a large
        one."""
        try:
            message = pb.Message.FromString(tail)
        except DecodeError:
            return None
        said = tail.removeprefix(_NO_PRIORITY)
        in_order = message.SerializeToString() == said and (not said or said[0] > _PROPERTIES)
        usual = (
            in_order and message.priority <= PRIORITY_MAX and not (message.chunks or message.body_bytes or message.amqp)
        )
        found = of_fields(message) if usual else None
        return self._tails.keep(tail, found, _TAIL_KEPT_BYTES + len(tail)) if len(tail) <= _TAIL_BYTES_MAX else found


_SMALL_INTEGERS = {byte: pack_long(byte >> 1 ^ -(byte & 1)) for byte in range(_MORE)}
_PLACES = {_HEADERS: "headers", _PROPERTIES: "properties"}


def _integer(content: bytes) -> bytes | None:
    """A zigzag varint as 8 bytes; None if it is no valid varint or a longer one."""
    if len(content) == 1:
        return _SMALL_INTEGERS.get(content[0])
    if not 0 < len(content) <= _INTEGER_BYTES_MAX or content[-1] >= _MORE:
        return None
    value = 0
    for place, byte in enumerate(content):
        if byte < _MORE and place < len(content) - 1:
            return None
        value |= (byte & 0x7F) << 7 * place
    return pack_long(value >> 1 ^ -(value & 1))
