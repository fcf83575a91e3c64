"""Headers made from a message's bytes are those of the message that protobuf parses, or there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from journal.routing.config import RoutingConfig
from journal.routing.headers import DESTINATION_HEADER, HeaderNames, belongs_to_headers
from journal.routing.outcomes import Header
from journal.routing.quick import QuickHeaders
from journal.routing.router import Router
from journal.store.message_records import encode_message
from journal.store.model import Message, Value
from journal.v1 import store_pb2 as pb

NAMES = HeaderNames()
QUICK = QuickHeaders(NAMES)
"""The same for all examples: what one has left in it must not show in another."""

values: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-200, 200),
    st.floats(allow_nan=False),
    st.text(max_size=130),
    st.binary(max_size=10),
)
names = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["JMSType", "JMSXGroupID", "JMSMessageID", "jmsbridge.origin", "_jmsbr_x_hops", "kafka.topic"]),
)
times = st.one_of(st.just(0), st.integers(1, 2**63 - 1))
messages = st.builds(
    Message,
    address=st.text(min_size=1, max_size=130),
    body=st.one_of(st.binary(max_size=300), st.sampled_from([127, 128, 16383, 16384]).map(bytes)),
    headers=st.dictionaries(names, values, max_size=3),
    properties=st.dictionaries(names, values, max_size=3),
    priority=st.integers(0, 9),
    timestamp=times,
    expires=times,
    due=times,
    duplicate_id=st.binary(max_size=3),
)


def quick(data: bytes) -> tuple[bytes, list[Header]] | None:
    """The quick way's record, asked for as the router does: it looks at the address first."""
    if len(data) < 2 or data[0] != 0x0A or data[1] >= 0x80:
        return None
    end = 2 + data[1]
    try:
        data[2:end].decode()
    except UnicodeDecodeError:
        return None
    return QUICK.encoded((DESTINATION_HEADER, data[2:end]), 7, data, end)


def of_the_parsed(message: pb.Message) -> tuple[bytes, list[Header]]:
    return message.body, NAMES.encoded(7, message.address.encode(), message)


@given(messages)
def test_the_quick_way_gives_what_the_parser_gives_or_nothing(message: Message) -> None:
    data = encode_message(message)
    found = quick(data)
    assert found is None or found == of_the_parsed(pb.Message.FromString(data))


@given(
    st.dictionaries(st.text(max_size=8).filter(lambda name: not belongs_to_headers(name)), values, max_size=3),
    times,
)
def test_a_plain_message_is_not_left_to_the_parser(properties: dict[str, Value], timestamp: int) -> None:
    kept = {
        name: value
        for name, value in properties.items()
        if not isinstance(value, bytes) and not (isinstance(value, str) and len(value.encode()) > 100)
        if not (isinstance(value, int) and abs(value) > 2**61)
    }
    message = Message("orders.eu", b"x" * 200, properties=kept, timestamp=timestamp, duplicate_id=b"d")
    assert quick(encode_message(message)) is not None


@given(messages, st.data())
@example(Message("a", properties={"n": "v"}), None)
def test_damaged_bytes_are_not_taken_for_a_message(message: Message, data: st.DataObject | None) -> None:
    whole = encode_message(message)
    if data is None:
        damages = [whole[:at] + bytes([byte]) + whole[at + 1 :] for at in range(len(whole)) for byte in range(256)]
        damages += [whole[:at] for at in range(len(whole))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        damages = [whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + data.draw(st.integers(0, 3)) :]]
    for damaged in damages:
        found = quick(damaged)
        if found is None:
            continue
        try:
            parsed = pb.Message.FromString(damaged)
        except DecodeError:
            raise AssertionError(f"{damaged!r} is not a message, and gave {found}") from None
        assert found == of_the_parsed(parsed), damaged


@given(
    messages,
    st.sampled_from(["JMSType", "JMSXGroupID", "JMSMessageID", "jmsbridge.origin", "kafka.topic", "n"]),
    values,
    values,
    st.sampled_from(["typed", "text"]),
)
def test_the_quick_way_gives_records_the_key_and_headers_that_the_parser_gives(
    message: Message, name: str, header: Value, value: Value, key_format: str
) -> None:
    target = {"topic": "t", "key": [f"header:{name}", "message-id"], "key_format": key_format}
    config = RoutingConfig.model_validate({"routes": [{"name": "r", "targets": [target]}]})
    router = Router(config, journal="j", own_topics=frozenset())
    for headers, properties in (({}, {name: value}), ({name: header}, {}), ({name: header}, {name: value})):
        data = encode_message(replace(message, headers=headers, properties=properties))
        again = data + bytes((0x28, message.priority))  # the same, said twice: not as it is expected
        assert router.route(7, data) == router.route(7, again)


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"key_format": "text"},
        {"key": ["header:n", "constant:c"], "partitioner": "crc32"},
        {"headers": ["n*"]},
        {"value": "json"},
        {"reply_topic": "replies"},
        {"topic": "t-{address}"},
        {"key": "message-id"},
    ],
    ids=str,
)
@given(messages, st.sampled_from([None, "text", 7, -1, True, b"bytes"]), st.sampled_from([300, 99_000]), st.booleans())
@example(Message("a", b"body"), "text", 99_000, False)
@example(Message("a", b"body", properties={"n\0": "cut"}), "text", 99_000, False)
def test_a_target_that_has_all_of_an_address_makes_what_it_makes_behind_a_filter(
    target: dict[str, object], message: Message, value: Value | None, bytes_max: int, twice: bool
) -> None:
    properties = message.properties | ({} if value is None else {"n": value})
    headers = message.headers | ({} if twice else {"JMSReplyTo": "answers"})
    data = encode_message(replace(message, address="a.b", headers=headers, properties=properties))
    targets = [{"topic": "t", "key": "header:n", **target}, *([{"topic": "v"}] * twice)]
    outcomes = []
    for condition in ("", "1 = 1"):
        first = {"name": "first", "address": "a.*", "filter": condition, "targets": targets, "stop": True}
        behind = {"name": "behind", "targets": [{"topic": "u"}]}
        config = RoutingConfig.model_validate({"routes": [first, behind]})
        router = Router(config, journal="j", own_topics=frozenset(), bytes_max={"t": bytes_max})
        outcomes.append(router.route(7, data))
    assert outcomes[0] == outcomes[1]
