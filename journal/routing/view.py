"""A message's headers by name, for filters, templates and keys."""

from __future__ import annotations

from journal.routing import headers as convention
from journal.store.model import Message, Value
from journal.v1 import store_pb2 as pb


class MessageView:
    """A stored message. A name is looked for among its headers, its properties, and then its fields."""

    __slots__ = ("_headers", "_properties", "id", "message")

    def __init__(self, message_id: int, message: pb.Message) -> None:
        self.id = message_id
        self.message = message
        self._headers = message.headers
        self._properties = message.properties

    def value(self, name: str) -> Value | None:
        """None where there is none."""
        for values in (self._headers, self._properties):
            if name in values:
                return convention.property_value(values[name])
        return self.id if name == convention.MESSAGE_ID else field_of(self.message, name)

    def came_from(self) -> str:
        """The topic whose record it was; empty: none."""
        if convention.KAFKA_TOPIC not in self._properties:
            return ""
        return self._properties[convention.KAFKA_TOPIC].text


def field_of(message: Message | pb.Message, name: str) -> Value | None:
    """A field by its name in JMS, but for the id, which a message has when it is stored; None: it says nothing."""
    match name:
        case "address" | convention.DESTINATION:
            return message.address
        case convention.PRIORITY:
            return message.priority
        case convention.TIMESTAMP:
            return message.timestamp or None
        case convention.EXPIRATION:
            return message.expires
        case convention.DELIVERY_TIME:
            return message.due or None
        case "JMSDeliveryMode":
            return "PERSISTENT"
    return None
