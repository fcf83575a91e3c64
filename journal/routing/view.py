"""A message's headers by name, for filters, templates and keys."""

from __future__ import annotations

from journal.routing import headers as convention
from journal.store.amqp_head import values_of
from journal.store.model import Message, Value
from journal.v1 import store_pb2 as pb

FIELDS = convention.OF_FIELDS | convention.OF_ORIGIN | {convention.ADDRESS, convention.DELIVERY_MODE}
"""Names that always mean fields, even if a sender has set a header or property of the same name."""


class MessageFields:
    """A stored message, whose values are asked for by name: the name of a field, or else of a header or a property."""

    __slots__ = ("_headers", "_properties", "id", "message")

    def __init__(self, message_id: int, message: pb.Message) -> None:
        self.id = message_id
        self.message = message
        self._headers = message.headers
        self._properties = message.properties

    def value(self, name: str) -> Value | None:
        """The value with this name; None if there is none."""
        if name in FIELDS:
            return self.id if name == convention.MESSAGE_ID else field_of(self.message, name)
        for values in (self._headers, self._properties):
            if name in values:
                return convention.property_value(values[name])
        return None

    def came_from(self) -> str:
        """The topic of the record from which this message was made; empty if there was none."""
        if convention.KAFKA_TOPIC not in self._properties:
            return ""
        return self._properties[convention.KAFKA_TOPIC].text


def value_of(message: Message, name: str) -> Value | None:
    """The value with this name, as `MessageFields.value` gives it, for a message that has no id yet."""
    if name in FIELDS:
        return field_of(message, name)
    headers, properties = values_of(message.amqp) if message.amqp else (message.headers, message.properties)
    return headers.get(name, properties.get(name))


def field_of(message: Message | pb.Message, name: str) -> Value | None:
    """A field by its JMS name, except the id, which only a stored message has; None if the field is not set."""
    match name:
        case convention.ADDRESS | convention.DESTINATION:
            return message.address
        case convention.PRIORITY:
            return message.priority
        case convention.TIMESTAMP:
            return message.timestamp or None
        case convention.EXPIRATION:
            return message.expires
        case convention.DELIVERY_TIME:
            return message.due or None
        case convention.DELIVERY_MODE:
            return "PERSISTENT"
        case _ if name in convention.OF_ORIGIN:
            return _of_origin(message, name)
    return None


def _of_origin(message: Message | pb.Message, name: str) -> Value | None:
    """A field that says where the message came from; None if it is still where it was sent."""
    if isinstance(message, pb.Message) and not message.HasField("origin"):
        return None
    origin = message.origin
    if origin is None:
        return None
    match name:
        case convention.MOVED_ADDRESS:
            return origin.address
        case convention.MOVED_QUEUE:
            return origin.queue
        case convention.MOVED_REASON:
            return origin.reason
    return origin.message
