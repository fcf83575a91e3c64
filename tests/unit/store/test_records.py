"""Bytes of the store's records: what goes in comes out, and both ways of encoding agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.errors import InvalidOperationError, RowError
from journal.store import message_records, records
from journal.store.model import Message, Origin, QueueConfig, Routing
from journal.v1 import store_pb2 as pb

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.one_of(st.just(0), st.integers(0, 2**63 - 1))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(st.booleans(), INT64, st.floats(allow_nan=False), TEXT, st.binary(max_size=20))
PLAIN = st.builds(
    Message, address=TEXT, body=st.binary(), priority=st.integers(0, 9), timestamp=TIMES, expires=TIMES, due=TIMES
)
WHOLE = st.builds(
    Message,
    address=TEXT,
    body=st.binary(),
    headers=st.dictionaries(TEXT, VALUES, max_size=3),
    properties=st.dictionaries(TEXT, VALUES, max_size=3),
    priority=st.integers(0, 9),
    timestamp=TIMES,
    expires=TIMES,
    due=TIMES,
    duplicate_id=st.binary(),
    origin=st.none() | st.builds(Origin, message=INT64, address=TEXT, queue=TEXT, reason=TEXT, expires=TIMES),
)


@given(WHOLE | PLAIN)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert message_records.decode_message(message_records.encode_message(message)) == message


@given(st.lists(WHOLE | PLAIN), st.integers(0, 5))
def test_many_messages_are_as_each_by_itself_but_for_large_bodies(messages: list[Message], body_bytes_max: int) -> None:
    assert message_records.encode_messages(messages, body_bytes_max) == [
        message_records.encode_message(each) if len(each.body) <= body_bytes_max else b"" for each in messages
    ]


@pytest.mark.parametrize(
    "field",
    [
        {"headers": {"h": 1}},
        {"properties": {"p": "x"}},
        {"timestamp": 7},
        {"expires": 7},
        {"due": 7},
        {"duplicate_id": b"d"},
        {"origin": Origin(1, "a", "q", "why")},
        {"priority": 9},
    ],
    ids=lambda field: next(iter(field)),
)
def test_among_many_a_message_keeps_what_only_it_has(field: dict[str, Any]) -> None:
    message = Message("a", b"body", **field)
    messages = [Message("a", b"before"), message, Message("a", b"behind")]
    assert [message_records.decode_message(each) for each in message_records.encode_messages(messages, 10)] == messages


@given(PLAIN)
def test_a_message_put_together_from_parts_is_what_protobuf_reads(message: Message) -> None:
    read = pb.Message.FromString(message_records.encode_message(message))
    assert read == pb.Message(
        address=message.address,
        body=message.body,
        priority=message.priority,
        timestamp=message.timestamp,
        expires=message.expires,
        due=message.due,
    )


@pytest.mark.parametrize("size", [0, 1, 127, 128, 4095, 4096, 4097, 16383, 16384, 100_000])
def test_bodies_of_every_length_come_back(size: int) -> None:
    message = Message("a", body=b"x" * size)
    data = message_records.encode_message(message)
    assert message_records.decode_message(data).body == message.body
    assert message_records.encode_messages([message], size) == [data]


def test_a_large_message_has_its_body_elsewhere() -> None:
    data = message_records.encode_message(Message("a", timestamp=5), chunks=(11, 12), body_bytes=1_000_000)
    facts = message_records.message_facts(data)
    assert (facts.chunks, facts.size) == ((11, 12), len(data) + 1_000_000)
    assert message_records.decode_message(data, b"the body").body == b"the body"


@given(WHOLE)
def test_facts_are_the_messages(message: Message) -> None:
    data = message_records.encode_message(message)
    facts = message_records.message_facts(data)
    assert facts == message_records.MessageFacts(
        message.address, message.priority, len(data), message.timestamp, message.expires,
        message.due, (), message.duplicate_id,
    )  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        Message("a", priority=10),
        Message("a", priority=-1),
        Message("a", timestamp=-1),
        Message("a", expires=2**63),
        Message("a", due=-1),
        Message("\ud800"),
        Message("a", headers={"h": 2**63}),
        Message("a", properties={"p": None}),  # type: ignore[dict-item]
        Message("a", headers={"h": "\ud800"}),
    ],
)
def test_what_has_no_place_in_a_message_is_refused(message: Message) -> None:
    with pytest.raises(InvalidOperationError):
        message_records.encode_message(message)
    with pytest.raises(InvalidOperationError):
        message_records.encode_messages([message], 0)


@pytest.mark.parametrize("name", ["timestamp", "expires", "due"])
@pytest.mark.parametrize("value", [0.0, 1.5, "1"])
def test_a_time_that_is_no_integer_is_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        message_records.encode_message(Message("a", **{name: value}))
    with pytest.raises(TypeError):
        message_records.encode_messages([Message("a", **{name: value})], 0)


def test_a_queue_comes_back_as_it_was() -> None:
    for config in (
        QueueConfig(name="q", address="a"),
        QueueConfig(
            name="q", address="a", routing=Routing.MULTICAST, client_id="c", subscription="s", filter="x > 1",
            exclusive=True, deliveries_max=3, dead_letter_address="dead", expiry_address="expired",
        ),
    ):  # fmt: skip
        assert records.decode_queue(records.encode_queue(config)) == config


def test_addresses_bindings_and_updates_come_back_as_they_were() -> None:
    assert records.decode_address(records.encode_address("a", 100)) == ("a", 100)
    assert records.decode_binding(records.encode_binding(2 << 10, "key", "filter")) == (2 << 10, "key", "filter")
    reference = records.encode_reference(pb.Reference.ACQUIRED, "holder", 3, 99)
    assert records.decode_reference(reference) == ("holder", 3, 99)
    for reason, holder in ((pb.Acknowledgement.CONSUMED, ""), (pb.Acknowledgement.EXPIRED, "h")):
        assert records.decode_acknowledgement(records.encode_acknowledgement(reason, holder)) == (reason, holder)
    assert records.decode_duplicate(records.encode_duplicate(b"\0id")) == b"\0id"


def test_values_out_of_range_are_refused() -> None:
    refused: list[Callable[[], bytes]] = [
        lambda: records.encode_reference(pb.Reference.DELIVERED, "", 2**32),
        lambda: records.encode_reference(pb.Reference.DELIVERED, "", -1),
        lambda: records.encode_queue(QueueConfig(name="q", address="a", deliveries_max=-1)),
        lambda: records.encode_address("a", -1),
        lambda: records.encode_binding(2**63, "", ""),
    ]
    for encode in refused:
        with pytest.raises(InvalidOperationError):
            encode()


def test_bytes_that_are_not_a_record_are_a_row_error() -> None:
    decoders: list[Callable[[bytes], object]] = [
        records.decode_address,
        records.decode_queue,
        records.decode_binding,
        message_records.decode_message,
        message_records.message_facts,
        records.decode_reference,
        records.decode_acknowledgement,
        records.decode_duplicate,
    ]
    for decode in decoders:
        with pytest.raises(RowError):
            decode(b"\xff\xff\xff")
    with pytest.raises(RowError):
        records.decode_queue(pb.Queue(name="q", routing=pb.Routing.ValueType(9)).SerializeToString())
    without_value = pb.Message()
    without_value.headers["h"].SetInParent()
    with pytest.raises(RowError):
        message_records.decode_message(without_value.SerializeToString())
