"""A message of AMQP as a message of the store, and a message of the store as the bytes of a transfer.

The bare message is kept as it came (`journal.store.amqp_head`); header and delivery annotations are written anew. A
message that did not come by AMQP, from the library or a source, becomes a data section with its properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from journal.amqp.described import MESSAGE_ID
from journal.amqp.message_types import MessageHeader, MessageProperties
from journal.amqp.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    MessageSections,
    encode_head,
    encode_message,
)
from journal.store.amqp_head import split, values_of
from journal.store.model import PRIORITY_MAX, Message, Value

_DELIVERY_TIME, _DELIVERY_DELAY = "x-opt-delivery-time", "x-opt-delivery-delay"
_UINT_MAX = 2**32 - 1


def message_of(sections: MessageSections, address: str, now_ms: int) -> Message:
    """The message of the store. Raises AmqpPeerError for sections that cannot be read."""
    amqp, content = split(sections)
    header = sections.header
    message = Message(address, content, amqp=amqp, timestamp=now_ms, priority=min(int(header.priority), PRIORITY_MAX))
    places = sections.places
    if PROPERTIES in places or APPLICATION_PROPERTIES in places:
        # properties that cannot be read are the sender's error; a take finds the decoded ones again
        values_of(amqp, sections)
    if header.ttl is not None:
        message.expires = now_ms + header.ttl
    elif PROPERTIES in places and (expiry := sections.properties.absolute_expiry_time):
        message.expires = max(0, int(expiry))
    if MESSAGE_ANNOTATIONS in places:
        message.due = _due(sections.message_annotations, now_ms)
    return message


def duplicate_id_of(sections: MessageSections) -> bytes:
    """The id by which a message is known again that a client sends twice: its message id as AMQP encodes it. Without a
    message id it is empty."""
    message_id = sections.properties.message_id if PROPERTIES in sections.places else None
    return b"" if message_id is None else MESSAGE_ID.encode(message_id)


def _due(annotations: Mapping[Any, Any], now_ms: int) -> int:
    time_ms, delay_ms = annotations.get(_DELIVERY_TIME), annotations.get(_DELIVERY_DELAY)
    if isinstance(time_ms, int) and time_ms > now_ms:
        return int(time_ms)
    return now_ms + int(delay_ms) if isinstance(delay_ms, int) and delay_ms > 0 else 0


def transfer_of(message: Message, deliveries: int, *, redelivered: bool, now_ms: int) -> bytes:
    """The bytes of a transfer that hands out a message which was delivered `deliveries` times before."""
    header = MessageHeader(
        durable=message.durable,
        priority=message.priority,
        ttl=min(max(message.expires - now_ms, 1), _UINT_MAX) if message.expires else None,
        first_acquirer=not redelivered,
        delivery_count=deliveries,
    )
    if message.amqp:
        return b"".join((encode_head(header), message.amqp, message.body))
    return encode_message(
        message.body,
        header=header,
        properties=MessageProperties(
            correlation_id=_text(message.headers.get("JMSCorrelationID")),
            reply_to=_text(message.headers.get("JMSReplyTo")),
            subject=_text(message.headers.get("JMSType")),
            creation_time=message.timestamp or None,
        ),
        application_properties=message.properties,
    )


def _text(value: Value | None) -> str | None:
    return value if isinstance(value, str) else None
