"""The header convention: a message's headers and properties as typed Kafka headers, and back.

A header is named `jms.<type>.<name>` and encoded as the JMS Bridge does. If that name would not show whether it was a
header or a property, it begins with `kafka-journal.header.` or `kafka-journal.property.` instead of `jms.`.
docs/ROUTING.md has the table. Hot path of messages to Kafka: the encoders take protobuf's values directly, and each
name is made once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from journal.errors import RowError
from journal.patterns import NamePatterns
from journal.process.kept import Kept
from journal.routing.outcomes import Header, Reason, UnfitError
from journal.store.model import PRIORITY_DEFAULT, Value
from journal.v1 import store_pb2 as pb

ORIGIN = "jmsbridge.origin"
REPLAYED = "kafka-journal.replayed"
REPLY_TOPIC = "kafka_replyTopic"
ERROR_PREFIX = "kafka-journal.error."

MESSAGE_ID, DESTINATION, TIMESTAMP = "JMSMessageID", "JMSDestination", "JMSTimestamp"
PRIORITY, EXPIRATION, DELIVERY_TIME = "JMSPriority", "JMSExpiration", "JMSDeliveryTime"
ADDRESS, DELIVERY_MODE = "address", "JMSDeliveryMode"
MOVED_ADDRESS, MOVED_QUEUE, MOVED_REASON = "origin.address", "origin.queue", "origin.reason"
MOVED_MESSAGE = "origin.message"
OF_ORIGIN = frozenset([MOVED_ADDRESS, MOVED_QUEUE, MOVED_REASON, MOVED_MESSAGE])
"""Names of the fields that say where a dead letter, or a moved or expired message, came from."""
CORRELATION_ID, REPLY_TO = "JMSCorrelationID", "JMSReplyTo"
OF_FIELDS = frozenset([MESSAGE_ID, DESTINATION, TIMESTAMP, PRIORITY, EXPIRATION, DELIVERY_TIME])
"""Names of the headers that a stored message keeps as fields."""

KAFKA_TOPIC, KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_KEY = "kafka.topic", "kafka.partition", "kafka.offset", "kafka.key"
KAFKA_FACTS = frozenset([KAFKA_TOPIC, KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_KEY])
"""Properties that describe the record from which a message was made. They are not sent to Kafka again."""

_JMS, _HEADER, _PROPERTY = "jms.", "kafka-journal.header.", "kafka-journal.property."
_OWN = "kafka-journal."
"""The prefix of the names in `OF_ORIGIN`."""
_HOPS_START, _HOPS_END = "_jmsbr_", "_hops"
_LONG, _INT, _SHORT = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">h")
_DOUBLE, _FLOAT = struct.Struct(">d"), struct.Struct(">f")

pack_long = _LONG.pack
pack_hops = _INT.pack


def hops_name(journal: str) -> str:
    """The name of the header that counts how many times a journal has sent a message to Kafka."""
    return f"{_HOPS_START}{journal}{_HOPS_END}".replace(".", "_").replace("-", "_")


def is_hops(name: str) -> bool:
    return name.startswith(_HOPS_START) and name.endswith(_HOPS_END)


def belongs_to_headers(name: str) -> bool:
    """Whether JMS defines the name. Names that JMS defines are a message's headers; all others are its properties."""
    return name.startswith("JMS") and not name.startswith(("JMSX", "JMS_"))


def goes_out(name: str, place: str) -> bool:
    """Whether a header or property is sent with its message. The hop counts and the facts of the record that the
    message was made from are not."""
    return not (name == ORIGIN or is_hops(name)) if place == "headers" else name not in KAFKA_FACTS


# ---- from a message to Kafka
# ------------------------------------------------------------------------------------------

_ENCODERS: Mapping[str, tuple[str, Callable[[Any], bytes]]] = {
    "boolean": ("boolean", lambda value: b"true" if value else b"false"),
    "integer": ("long", _LONG.pack),
    "real": ("double", _DOUBLE.pack),
    "text": ("string", str.encode),
    "binary": ("bytes", bytes),
}

DESTINATION_HEADER, MESSAGE_ID_HEADER = "jms.string.JMSDestination", "jms.long.JMSMessageID"


def of_fields(message: pb.Message) -> list[Header]:
    """Kafka headers for a message's fields, without its address and without fields that are not set."""
    out: list[Header] = []
    if timestamp := message.timestamp:
        out.append(("jms.long.JMSTimestamp", pack_long(timestamp)))
    if (priority := message.priority) != PRIORITY_DEFAULT:
        out.append(("jms.int.JMSPriority", _INT.pack(priority)))
    if expires := message.expires:
        out.append(("jms.long.JMSExpiration", pack_long(expires)))
    if due := message.due:
        out.append(("jms.long.JMSDeliveryTime", pack_long(due)))
    if message.HasField("origin"):
        found = message.origin
        out += [
            (_OWN + MOVED_ADDRESS, found.address.encode()),
            (_OWN + MOVED_QUEUE, found.queue.encode()),
            (_OWN + MOVED_REASON, found.reason.encode()),
            (_OWN + MOVED_MESSAGE, b"%d" % found.message),
        ]
    return out


_Entry = tuple[str, Callable[[Any], bytes]] | None


class HeaderNames:
    """The Kafka names of a message's headers and properties; each name is made once. None means that the header is not
    sent."""

    def __init__(self) -> None:
        self._of_headers: Kept[tuple[str, str | None], _Entry] = Kept()
        self._of_properties: Kept[tuple[str, str | None], _Entry] = Kept()
        self.may_be_cut = False
        """Whether one of the names contained a NUL character, at which Kafka's clients would cut the name off."""

    def encoded(self, message_id: int, address: bytes, message: pb.Message) -> list[Header]:
        """All Kafka headers of a message in the order of their names, except the hop counts and the facts of the record
        that the message was made from.

        Hot path. Raises RowError.
        """
        out: list[Header] = [
            (DESTINATION_HEADER, address),
            (MESSAGE_ID_HEADER, pack_long(message_id)),
            *of_fields(message),
        ]
        for values, known in ((message.headers, self._of_headers), (message.properties, self._of_properties)):
            if values:
                # a protobuf map has no fixed order, and equal messages must give equal records
                for name in sorted(values):
                    value = values[name]
                    content: Any = value.text
                    kind: str | None = "text"
                    if not content:
                        kind, content = _typed_value(value)
                    try:
                        entry = known[name, kind]
                    except KeyError:
                        entry = self._named(name, kind, known)
                    if entry is not None:
                        out.append((entry[0], entry[1](content)))
        return out

    def kafka_name(self, name: str, kind: str, place: str) -> str | None:
        """The Kafka name of a header or property; None if it is not sent."""
        known = self._of_headers if place == "headers" else self._of_properties
        try:
            entry = known[name, kind]
        except KeyError:
            entry = self._named(name, kind, known)
        return None if entry is None else entry[0]

    def kafka_names(self, name: str, *, text: bool = False) -> frozenset[str]:
        """The names that a header or property may have in Kafka, for any type of value or for text only. Empty if
        headers of this name are not sent."""
        kinds = ["text"] if text else list(_ENCODERS)
        if any(self.kafka_name(name, kind, "headers") is None for kind in kinds):
            return frozenset()
        found = (self.kafka_name(name, kind, place) for kind in kinds for place in ("headers", "properties"))
        return frozenset(each for each in found if each is not None)

    def _named(self, name: str, kind: str | None, known: Kept[tuple[str, str | None], _Entry]) -> _Entry:
        if kind is None:
            raise RowError(f"property {name!r} has no value")
        self.may_be_cut |= "\0" in name
        kafka_type, encode = _ENCODERS[kind]
        entry: _Entry
        if known is self._of_headers:
            prefix = _JMS if belongs_to_headers(name) and name not in OF_FIELDS else _HEADER
            entry = (f"{prefix}{kafka_type}.{name}", encode) if goes_out(name, "headers") else None
        else:
            prefix = _PROPERTY if belongs_to_headers(name) else _JMS
            entry = (f"{prefix}{kafka_type}.{name}", encode) if goes_out(name, "properties") else None
        return known.keep((name, kind), entry, 2 * len(name))


def _typed_value(value: pb.Property) -> tuple[str | None, Any]:
    kind = value.WhichOneof("value")
    return kind, None if kind is None else getattr(value, kind)


def whole(headers: Iterable[Header]) -> list[Header]:
    """The headers whose names contain no NUL character, so that Kafka's clients do not cut them off."""
    return [header for header in headers if "\0" not in header[0]]


def kept(headers: Iterable[Header], patterns: NamePatterns) -> list[Header]:
    """Those headers from `HeaderNames.encoded` whose names in the message match the patterns."""
    return [header for header in headers if own_name(header[0]) in patterns]


_own_names: Kept[str, str] = Kept()


def own_name(kafka_name: str) -> str:
    """The name in the message, read from a Kafka header's name."""
    found = _own_names.get(kafka_name)
    return _own_names.keep(kafka_name, _own_name(kafka_name), 2 * len(kafka_name)) if found is None else found


def _own_name(kafka_name: str) -> str:
    for prefix in (_JMS, _HEADER, _PROPERTY):
        if kafka_name.startswith(prefix):
            return _typed(kafka_name[len(prefix) :])[1]
    origin = kafka_name.removeprefix(_OWN)
    return origin if origin in OF_ORIGIN else kafka_name


def encoded_value(value: Value) -> bytes:
    """A value encoded as its header's type says."""
    match value:
        case bool():
            return b"true" if value else b"false"
        case int():
            return pack_long(value)
        case float():
            return _DOUBLE.pack(value)
        case str():
            return value.encode()
        case _:
            return value


def property_value(value: pb.Property) -> Value:
    kind = value.WhichOneof("value")
    if kind is None:
        raise RowError("a property has no value")
    found: Value = getattr(value, kind)
    return found


# ---- from Kafka to a message
# ------------------------------------------------------------------------------------------


def _boolean(value: bytes) -> bool:
    text = value.lower()
    if text not in (b"true", b"false"):
        raise ValueError("neither true nor false")
    return text == b"true"


def _text_or_bytes(value: bytes) -> Value:
    """The value of a header without a type: text if the bytes are UTF-8, else bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return bytes(value)


_DECODERS: Mapping[str, Callable[[bytes], Value]] = {
    "string": bytes.decode,
    "text": bytes.decode,
    "destination": bytes.decode,
    "int": lambda value: int(_INT.unpack(value)[0]),
    "int32": lambda value: int(_INT.unpack(value)[0]),
    "long": lambda value: int(_LONG.unpack(value)[0]),
    "int64": lambda value: int(_LONG.unpack(value)[0]),
    "short": lambda value: int(_SHORT.unpack(value)[0]),
    "float": lambda value: float(_FLOAT.unpack(value)[0]),
    "double": lambda value: float(_DOUBLE.unpack(value)[0]),
    "boolean": _boolean,
    "bytes": bytes,
    "char": bytes,
    "object": bytes,
}


class TurnedBack(NamedTuple):
    """A record's Kafka headers decoded into the headers, properties and fields of a message."""

    headers: dict[str, Value]
    properties: dict[str, Value]
    fields: dict[str, Value]
    """Values of the fields named in `OF_FIELDS`."""
    hops: dict[str, int]
    """For each journal, how many times it has sent the message to Kafka."""


def turned_back(headers: Iterable[Header], taken: Callable[[str], bool]) -> TurnedBack:
    """Decode those Kafka headers for whose names `taken` is true; the last header of a name counts. Raises UnfitError
    for a bad value.

    The hop counts are always decoded. A header outside the naming convention becomes a property: text if it is UTF-8,
    else bytes.
    """
    back = TurnedBack({}, {}, {}, {})
    for name, value in headers:
        if is_hops(name):
            hops = _decoded(name, "int", value or b"")
            assert isinstance(hops, int)
            if hops < 0:
                raise UnfitError(Reason.BAD_HEADER, f"header {name} counts {hops}")
            back.hops[name] = hops
        elif name == ORIGIN:
            back.headers[ORIGIN] = _decoded(name, "string", value or b"")
        elif value is not None and taken(name):
            _turn_back(name, value, back)
    return back


def plain_property(name: str) -> tuple[str, Callable[[bytes], Value]] | None:
    """The property that a header becomes, and the function that decodes its value, if the header's name is
    `jms.TYPE.NAME` with a known type and a property's name, or is outside the naming convention. None for other
    headers."""
    if name.startswith(_JMS):
        kafka_type, own = _typed(name[len(_JMS) :])
        return (own, _DECODERS[kafka_type]) if kafka_type and not belongs_to_headers(own) else None
    if name.startswith((_HEADER, _PROPERTY)) or name == ORIGIN or is_hops(name):
        return None
    return name, _text_or_bytes


def _turn_back(name: str, value: bytes, back: TurnedBack) -> None:
    if name.startswith(_JMS):
        kafka_type, own = _typed(name[len(_JMS) :])
        if not kafka_type and own in (CORRELATION_ID, REPLY_TO, DESTINATION):
            kafka_type = "string"
        if own in OF_FIELDS:
            back.fields[own] = _decoded(name, kafka_type, value)
        else:
            place = back.headers if belongs_to_headers(own) else back.properties
            place[own] = _decoded(name, kafka_type, value)
    elif name.startswith(_HEADER):
        kafka_type, own = _typed(name[len(_HEADER) :])
        back.headers[own] = _decoded(name, kafka_type, value)
    elif name.startswith(_PROPERTY):
        kafka_type, own = _typed(name[len(_PROPERTY) :])
        back.properties[own] = _decoded(name, kafka_type, value)
    else:
        back.properties[name] = _text_or_bytes(value)


def header_value(name: str, value: bytes) -> Value:
    """The decoded value of a header of the naming convention. Raises UnfitError if the bytes do not fit its type."""
    if is_hops(name):
        return _decoded(name, "int", value)
    for prefix in (_JMS, _HEADER, _PROPERTY):
        if name.startswith(prefix):
            return _decoded(name, _typed(name[len(prefix) :])[0], value)
    return value


def _typed(rest: str) -> tuple[str, str]:
    """The type and the name in a Kafka header's name; the type is empty if it is unknown."""
    kafka_type, dot, name = rest.partition(".")
    return (kafka_type, name) if dot and kafka_type in _DECODERS else ("", rest)


def _decoded(name: str, kafka_type: str, value: bytes) -> Value:
    try:
        return _DECODERS[kafka_type or "bytes"](value)
    except (ValueError, struct.error) as error:
        raise UnfitError(Reason.BAD_HEADER, f"header {name} has a value that is no {kafka_type}") from error
