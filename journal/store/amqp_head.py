"""A message that came by AMQP, as a store keeps it: the bytes before its body's content as the sender wrote them
(`Message.amqp`), and the content (`Message.body`). Both together are the bare message, byte for byte.

Headers and properties are not kept beside them: `values_of` decodes them when somebody asks.

    message annotations │ properties │ application properties │ head of the body │ content
    ◀──────────────────────────── Message.amqp ─────────────────────────────────▶ ◀─ Message.body ─▶

The content is the bytes of a single data section, or of a value that is a text or bytes. Any other body (a map, a list,
several sections, one with a footer) is content as it is encoded, sections and all. Where nothing precedes such a body,
`Message.amqp` is a section of no message annotations, because a message without `amqp` did not come by AMQP.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from journal.amqp.decoding import skip_value
from journal.amqp.message_types import MessageProperties
from journal.amqp.sections import DATA, VALUE, MessageSections
from journal.errors import AmqpPeerError
from journal.process.kept import Kept
from journal.store.model import Value

log = logging.getLogger(__name__)

Values: TypeAlias = tuple[Mapping[str, Value], Mapping[str, Value]]
"""The headers and the properties of a message."""

_HEAD_BYTES = {0xA0: 2, 0xA1: 2, 0xB0: 5, 0xB1: 5}
"""Bytes before the content of binaries and strings, by constructor."""

_NO_ANNOTATIONS = b"\x00\x53\x72\xc1\x01\x00"
"""An empty section of message annotations, which are no part of the bare message."""

_INTEGER_MAX = 2**63 - 1

_HEADERS = {
    "correlation_id": "JMSCorrelationID",
    "reply_to": "JMSReplyTo",
    "subject": "JMSType",
}
_PROPERTIES = {
    "message_id": "amqp.message-id",
    "user_id": "JMSXUserID",
    "to": "amqp.to",
    "content_type": "amqp.content-type",
    "content_encoding": "amqp.content-encoding",
    "group_id": "JMSXGroupID",
    "group_sequence": "JMSXGroupSeq",
    "reply_to_group_id": "amqp.reply-to-group-id",
}
"""Names under which the standard properties are seen; the two times are fields of a message."""

_DECODED_FACTOR = 4
"""How much memory decoded values take, as a multiple of the bytes that they were decoded from."""

_decoded: Kept[bytes, Values] = Kept(entry_bytes_max=_DECODED_FACTOR * 2048)
"""The values of the last messages, by `Message.amqp`. A sender's message is usually taken soon."""


def split(sections: MessageSections) -> tuple[bytes, bytes]:
    """A whole message without header and delivery annotations: the bytes before the content, and the content."""
    payload, begin = sections.payload, sections.kept_at
    at = _content_at(sections)
    return payload[begin:at] or _NO_ANNOTATIONS, payload[at:]


def _content_at(sections: MessageSections) -> int:
    payload, end = sections.payload, len(sections.payload)
    places = sections.places
    value_at = places.get(DATA, places.get(VALUE))
    if value_at is not None:
        head = _HEAD_BYTES.get(payload[value_at])
        if head is not None and skip_value(payload, value_at, end) == end:
            return value_at + head
    return sections.body_at


def values_of(head: bytes, sections: MessageSections | None = None) -> Values:
    """The headers and properties in `Message.amqp`. What no property of a store can be (a list, a decimal) is left out.
    `sections` are those of the whole message, if the caller has them.

    Raises AmqpPeerError for bytes that are no message's."""
    found = _decoded.get(head)
    if found is not None:
        return found
    if sections is None:
        sections = MessageSections(head, whole=False)
    standard = sections.properties
    found = (
        _named(standard, _HEADERS),
        _named(standard, _PROPERTIES) | _plain(sections.application_properties),
    )
    return _decoded.keep(head, found, _DECODED_FACTOR * len(head))


def stored_values_of(head: bytes) -> Values:
    """`values_of` for a message that is stored. If its bytes cannot be read, it has neither headers nor properties, so
    that it can still be taken, and settled."""
    try:
        return values_of(head)
    except AmqpPeerError as error:
        _warn_of_unreadable(str(error))
        return {}, {}


@lru_cache(maxsize=1)
def _warn_of_unreadable(why: str) -> None:
    """Say once that there is such a message; the same error again is not said again."""
    log.warning("a stored message is handed out without headers and properties, because they cannot be read: %s", why)


def _named(standard: MessageProperties, names: Mapping[str, str]) -> dict[str, Value]:
    return _plain({name: getattr(standard, field) for field, name in names.items()})


def _plain(values: Mapping[str, Any]) -> dict[str, Value]:
    found = ((name, plain_value(value)) for name, value in values.items())
    return {name: value for name, value in found if value is not None}


def plain_value(value: Any) -> Value | None:
    """An AMQP value as a property; None for one that has no such form."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value <= _INTEGER_MAX else str(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, UUID):
        return str(value)
    return value if type(value) is bytes else None
