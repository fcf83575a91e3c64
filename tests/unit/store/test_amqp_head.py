"""A message that came by AMQP: its bytes are kept as they came, and everybody sees what they say."""

from __future__ import annotations

from uuid import UUID

import pytest

from journal.amqp.message_types import MessageHeader, MessageProperties
from journal.amqp.sections import MessageSections, encode_message
from journal.amqp.values import Symbol, Uint
from journal.broker.messages import message_of
from journal.errors import AmqpPeerError
from journal.store.amqp_head import split, values_of
from journal.store.message_records import decode_message, parse_message
from journal.store.message_records import encode_message as encode_record
from journal.store.model import Message, Origin

STANDARD = MessageProperties(
    message_id=UUID(int=5), correlation_id=7, reply_to="answers", subject="order", group_id="g", group_sequence=3
)
BODIES = [b"bytes", b"b" * 300, "text", "t" * 300, {"a": [1, 2.5]}, [1, "x"], None, 5]


@pytest.mark.parametrize("body", BODIES)
def test_both_parts_together_are_the_message_without_its_header(body: object) -> None:
    kept = encode_message(body, properties=STANDARD, application_properties={"n": 1})
    sent = encode_message(
        body, header=MessageHeader(priority=9, ttl=5), properties=STANDARD, application_properties={"n": 1}
    )
    amqp, content = split(MessageSections(sent))
    assert amqp + content == kept
    if isinstance(body, bytes):
        assert content == body
    elif isinstance(body, str):
        assert content == body.encode()


def test_its_headers_and_properties_are_what_its_bytes_say() -> None:
    properties = {"n": Uint(1), "yes": True, "text": "x", "symbol": Symbol("s"), "list": [1], "none": None}
    amqp, _ = split(MessageSections(encode_message(b"", properties=STANDARD, application_properties=properties)))
    headers, found = values_of(amqp)
    assert headers == {"JMSCorrelationID": 7, "JMSReplyTo": "answers", "JMSType": "order"}
    assert found == {
        "amqp.message-id": str(UUID(int=5)),
        "JMSXGroupID": "g",
        "JMSXGroupSeq": 3,
        "n": 1,
        "yes": True,
        "text": "x",
        "symbol": "s",
    }


@pytest.mark.parametrize("origin", [None, Origin(5, "a", "q", "dead")], ids=["quick", "whole"])
def test_a_record_has_its_bytes_once_and_shows_what_they_say(origin: Origin | None) -> None:
    amqp, content = split(MessageSections(encode_message(b"body", application_properties={"region": "eu"})))
    message = Message("orders", content, amqp=amqp, timestamp=5, expires=9, due=7, priority=3, origin=origin)
    data = encode_record(message)
    assert data.count(b"region") == 1
    found = decode_message(data)
    assert (found.body, found.amqp, dict(found.properties)) == (b"body", amqp, {"region": "eu"})
    assert (found.timestamp, found.expires, found.due, found.priority, found.origin) == (5, 9, 7, 3, origin)
    assert encode_record(found) == data
    seen = parse_message(data)
    assert seen.properties["region"].text == "eu"


UNREADABLE = b"\x00\x53\x74\xc1\x05\x02\x54\x01\x54\x01"
"""Application properties with an integer as a key."""


def test_a_sender_is_told_that_its_properties_cannot_be_read() -> None:
    with pytest.raises(AmqpPeerError, match="a key that is no string"):
        message_of(MessageSections(UNREADABLE + encode_message(b"body")), "orders", 5)


def test_a_stored_message_whose_properties_cannot_be_read_has_none() -> None:
    data = encode_record(Message("orders", b"body", amqp=UNREADABLE))
    found = decode_message(data)
    assert (found.body, found.amqp, found.headers, found.properties) == (b"body", UNREADABLE, {}, {})
    assert not parse_message(data).properties
