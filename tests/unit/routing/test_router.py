"""The way out: which routes match, what they send, and what they refuse."""

from __future__ import annotations

import json
import struct
from typing import Any

import confluent_kafka
import pytest

from journal.errors import RowError
from journal.routing.outcomes import OnError, OutgoingRecord, PartitionRule, Reason, RouteRefusal, UnfitError
from journal.routing.partitions import parse_rule, partition_of
from journal.routing.router import Router
from journal.store.message_records import encode_message
from journal.store.model import Message, Origin
from journal.v1 import store_pb2 as pb
from tests.unit.routing.building import OWN, config, only, refused, route, router, sent, stored


def test_routes_are_asked_in_their_order_until_one_that_matches_stops() -> None:
    routes = router(
        route("other", address="b"),
        route("first", {"topic": "t1"}, {"topic": "t2"}, address="a.#"),
        route("choosy", {"topic": "t3"}, filter="x = 1", stop=True),
        route("last", {"topic": "t4"}),
    )
    assert sent(routes.route(1, stored("a.b"))) == [("first", "t1"), ("first", "t2"), ("last", "t4")]
    assert sent(routes.route(1, stored("a.b", x=1))) == [("first", "t1"), ("first", "t2"), ("choosy", "t3")]
    assert [verdict.verdict for verdict in routes.explain(1, stored("a.b", x=1))] == [
        "no: another address",
        "yes",
        "yes",
        "not asked: choosy stops",
    ]
    assert routes.explain(1, stored("a.b"))[2].verdict == "no: the filter is unknown, as x is not set"
    assert routes.explain(1, stored("a.b", x="17"))[2].verdict == "no: the filter is false, as x is the text 17"


@pytest.mark.parametrize("address", ["a", "", "é" * 100, "x" * 5000])
def test_a_message_of_no_route_gives_nothing_whatever_its_address(address: str) -> None:
    assert router(route(address="b.#")).route(1, stored(address)) == ()
    assert sent(router(route(address="#")).route(1, stored(address))) == [("r", "t")]


@pytest.mark.parametrize("on_error", list(OnError))
def test_whatever_one_target_raises_is_a_refusal_of_its_route_alone(on_error: OnError) -> None:
    def body(chunks: object) -> bytes:
        raise ZeroDivisionError("no such thing " * 10_000)

    large = encode_message(Message("a"), chunks=[7], body_bytes=100)
    routes = config(
        routes=[
            route("bad", on_error=on_error),
            route("good", {"topic": "t2", "value": "body"}, filter="JMSPriority=4"),
        ],
        dead_letter_topic="dead",
    )
    outcomes = Router(routes, journal="flights", own_topics=OWN).reading(body).route(1, large)
    assert [(each.route, each.reason, each.on_error) for each in outcomes if isinstance(each, RouteRefusal)] == [
        ("bad", Reason.UNEXPECTED, on_error),
        ("good", Reason.UNEXPECTED, OnError.FAIL),
    ]
    assert "ZeroDivisionError: no such thing" in str(outcomes[0])
    assert len(str(outcomes[0])) < 1200


def test_a_number_that_its_header_cannot_have_is_damage() -> None:
    data = pb.Message(address="a", priority=2**32 - 1).SerializeToString()
    with pytest.raises(RowError, match="number"):
        router(route()).route(1, data)


@pytest.mark.parametrize("place", ["headers", "properties"])
def test_a_messages_own_fields_go_before_headers_and_properties_of_their_names(place: str) -> None:
    """Its sender chooses those: not the topic, the key, nor what is filtered."""
    named = {"address": "evil", "JMSDestination": "evil", "JMSPriority": 9, "JMSMessageID": 7, "JMSDeliveryTime": 1}
    given = {place: named | {"JMSDeliveryMode": "NONE", "JMSExpiration": 3, "JMSTimestamp": 5}}
    data = encode_message(Message("good.way", b"", **given))

    def key(name: str) -> bytes | None:
        return only(router(route("r", {"topic": "t", "key": f"header:{name}"})).route(1, data)).key

    assert [key(name) for name in ("address", "JMSDestination")] == [b"good.way"] * 2
    assert [key(name) for name in ("JMSPriority", "JMSMessageID", "JMSExpiration")] == [
        struct.pack(">q", number) for number in (4, 1, 0)
    ]
    assert key("JMSDeliveryMode") == b"PERSISTENT"
    for topic, found in (
        ("to.{address}", "to.good.way"),
        ("to.{address[1]}", "to.way"),
        ("{JMSDestination}", "good.way"),
    ):
        assert only(router(route("r", {"topic": topic})).route(1, data)).topic == found
    assert (
        refused(router(route("r", {"topic": "t", "key": "header:JMSTimestamp"})).route(1, data)).reason is Reason.NO_KEY
    )
    text = "address = 'good.way' AND JMSPriority = 4 AND JMSDeliveryTime IS NULL AND JMSTimestamp IS NULL"
    assert len(router(route(filter=text)).route(1, data)) == 1


DEAD = Message(
    "dead", b"b", {"h": 1}, {"p": "x", "origin.address": "evil"}, origin=Origin(7, "orders", "q/1", "dead", 9)
)


def test_what_was_moved_says_so_to_filters_keys_templates_and_consumers() -> None:
    data = encode_message(DEAD)
    target = {"topic": "of-{origin.address}", "key": "header:origin.queue"}
    sending = only(router(route("r", target, filter="origin.reason = 'dead' AND origin.message = 7")).route(1, data))
    assert (sending.topic, sending.key) == ("of-orders", b"q/1")
    assert {name: value for name, value in sending.headers if name.startswith("kafka-journal.origin.")} == {
        "kafka-journal.origin.address": b"orders",
        "kafka-journal.origin.queue": b"q/1",
        "kafka-journal.origin.reason": b"dead",
        "kafka-journal.origin.message": b"7",
    }
    without = only(router(route("r", {"topic": "t", "headers": ["*", "!origin.*"]})).route(1, data))
    assert not [name for name, _ in without.headers if "kafka-journal.origin" in name]


def test_a_route_leaves_out_what_was_moved_and_nobody_pretends_to_be() -> None:
    routes = router(route(filter="origin.address IS NULL"))
    assert routes.route(1, encode_message(DEAD)) == []
    pretending = stored(**{"origin.address": "a", "kafka-journal.origin.address": "b"})
    assert "kafka-journal.origin.address" not in dict(only(routes.route(1, pretending)).headers)


def test_an_address_that_is_no_text_is_damage() -> None:
    with pytest.raises(RowError, match="not text"):
        router(route()).route(1, stored("a").replace(b"\x01a", b"\x01\xff"))


def test_what_is_no_message_is_damage() -> None:
    with pytest.raises(RowError):
        router(route()).route(1, b"\xff\xff")


def test_more_addresses_than_are_kept_are_routed_all_the_same() -> None:
    routes = router(route(address="a.*"))
    found = sum(len(routes.route(1, stored(f"{'ab'[number % 2]}.{number}"))) for number in range(70_000))
    assert found == 35_000


def test_headers_are_typed_and_named_as_the_jms_bridge_names_them() -> None:
    message = Message(
        "orders",
        b"x",
        {"JMSCorrelationID": "c", "own": "h"},
        {"n": 5, "d": 0.5, "s": "é", "b": b"\xff", "yes": True, "JMSType": "odd", "kafka.offset": 9},
        priority=9,
        timestamp=1000,
        expires=2000,
        due=3000,
    )
    out = only(router(route()).route(7, encode_message(message)))
    assert dict(out.headers) == {
        "jms.string.JMSDestination": b"orders",
        "jms.long.JMSMessageID": struct.pack(">q", 7),
        "jms.long.JMSTimestamp": struct.pack(">q", 1000),
        "jms.int.JMSPriority": struct.pack(">i", 9),
        "jms.long.JMSExpiration": struct.pack(">q", 2000),
        "jms.long.JMSDeliveryTime": struct.pack(">q", 3000),
        "jms.string.JMSCorrelationID": b"c",
        "kafka-journal.header.string.own": b"h",
        "jms.long.n": struct.pack(">q", 5),
        "jms.double.d": struct.pack(">d", 0.5),
        "jms.string.s": "é".encode(),
        "jms.bytes.b": b"\xff",
        "jms.boolean.yes": b"true",
        "kafka-journal.property.string.JMSType": b"odd",
        "jmsbridge.origin": b"flights",
        "_jmsbr_flights_hops": struct.pack(">i", 1),
    }


def test_only_the_headers_that_a_target_keeps_go_with_it_and_the_trail_always() -> None:
    target = {"topic": "t", "headers": ["JMS*", "a*", "!ab", "long.x"]}
    out = only(router(route("r", target)).route(7, stored("q", a=1, ab=1, b=1, **{"long.x": 1})))
    names = ["jms.string.JMSDestination", "jms.long.JMSMessageID", "jms.long.a", "jms.long.long.x"]
    assert [name for name, _ in out.headers] == [*names, "jmsbridge.origin", "_jmsbr_flights_hops"]
    assert [name for name, _ in only(router(route("r", {"topic": "t", "headers": []})).route(7, stored())).headers] == [
        "jmsbridge.origin",
        "_jmsbr_flights_hops",
    ]


@pytest.mark.parametrize(
    ("key", "text", "bytes_"),
    [
        ("message-id", False, struct.pack(">q", 7)),
        ("message-id", True, b"7"),
        ("none", False, None),
        ("constant:k:é", False, "k:é".encode()),
        ("header:s", False, b"N1"),
        ("header:n", False, struct.pack(">q", 5)),
        ("header:n", True, b"5"),
        ("header:yes", True, b"true"),
        ("header:b", True, b"\xff"),
        (["header:nothing", "header:s", "none"], False, b"N1"),
        ("header:JMSDestination", False, b"a"),
    ],
)
def test_a_key_is_the_first_of_its_list_that_the_message_has(key: Any, text: bool, bytes_: bytes | None) -> None:
    target = {"topic": "t", "key": key, "key_format": "text" if text else "typed"}
    assert only(router(route("r", target)).route(7, stored(s="N1", n=5, yes=True, b=b"\xff"))).key == bytes_


@pytest.mark.parametrize(("header", "key"), [(5, b"5"), ("h", b"h"), (True, b"true")])
def test_a_header_goes_before_a_property_of_its_name_as_a_text_key(header: Any, key: bytes) -> None:
    message = Message("a", b"body", headers={"n": header}, properties={"n": "property"})
    target = {"topic": "t", "key": "header:n", "key_format": "text"}
    assert only(router(route("r", target)).route(7, encode_message(message))).key == key


def test_a_message_without_its_keys_header_is_refused_by_the_routes_policy() -> None:
    target = {"topic": "t", "key": "header:tail"}
    failed = refused(router(route("r", target)).route(7, stored()))
    assert (failed.reason, failed.on_error, failed.dead_letter) == (Reason.NO_KEY, OnError.FAIL, None)
    assert "tail" in str(failed)
    assert refused(router(route("r", target, on_error="skip")).route(7, stored())).on_error is OnError.SKIP


def test_a_dead_letter_says_why_and_has_all_of_the_message() -> None:
    routes = router(
        route("r", {"topic": "x.{region}"}, on_error="dead-letter"), dead_letter_topic="dead", record_bytes_max=2000
    )
    letter = refused(routes.route(7, stored(a=1))).dead_letter
    assert letter is not None
    assert (letter.topic, letter.key, letter.value) == ("dead", struct.pack(">q", 7), b"body")
    headers = dict(letter.headers)
    assert headers["kafka-journal.error.reason"] == b"no-header"
    assert headers["kafka-journal.error.route"] == b"r"
    assert b"region" in (headers["kafka-journal.error.detail"] or b"")
    assert headers["jms.long.a"] == struct.pack(">q", 1)
    without_value = refused(routes.route(7, stored(body=b"x" * 3000))).dead_letter
    assert without_value is not None
    assert (without_value.value, dict(without_value.headers)["kafka-journal.error.without"]) == (None, b"value")
    bare = refused(routes.route(7, stored(p="x" * 3000))).dead_letter
    assert bare is not None
    assert (bare.key, dict(bare.headers)["kafka-journal.error.without"]) == (None, b"value, key, headers")


@pytest.mark.parametrize("headers", [{"h\0": "header"}, {"_jmsbr_x\0_hops": 1}, None])
def test_a_name_that_kafka_would_cut_off_is_refused_by_the_routes_policy(headers: Any) -> None:
    data = stored(headers=headers, **({} if headers else {"a\0b": "cut", "a": "whole"}))
    routes = router(route("r", {"topic": "t"}, on_error="dead-letter"), dead_letter_topic="dead")
    for _ in range(2):
        found = refused(routes.route(7, data))
        assert (found.reason, "has a NUL" in found.detail) == (Reason.BAD_HEADER, True)
        assert found.dead_letter is not None
        assert not any("\0" in name for name, _ in found.dead_letter.headers)
    assert only(routes.route(8, stored(a="whole"))).topic == "t"
    without = router(route("r", {"topic": "t", "headers": ["*", "!a\0b"]}))
    assert headers or dict(only(without.route(7, data)).headers)["jms.string.a"] == b"whole"


@pytest.mark.parametrize(
    ("template", "topic"),
    [
        ("t.{address}", "t.a.b"),
        ("{address[0]}-{address[-1]}", "a-b"),
        ("{n}.{yes}.{JMSPriority}", "5.true.4"),
    ],
)
def test_a_topic_may_be_a_template(template: str, topic: str) -> None:
    assert only(router(route("r", {"topic": template})).route(7, stored("a.b", n=5, yes=True))).topic == topic


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{nothing}", Reason.NO_HEADER),
        ("{address[7]}", Reason.NO_HEADER),
        ("{b}", Reason.NO_HEADER),
        ("{bad}", Reason.BAD_TOPIC),
        ("{long}", Reason.BAD_TOPIC),
        ("{own}", Reason.BAD_TOPIC),
        ("__{address}", Reason.BAD_TOPIC),
    ],
)
def test_a_template_that_makes_no_topic_is_a_refusal(template: str, reason: Reason) -> None:
    data = stored("a.b", b=b"\xff", bad="a/b", long="x" * 250, own="flights.wal")
    assert refused(router(route("r", {"topic": template})).route(7, data)).reason is reason


def test_invalid_utf8_is_refused_where_text_is_asked_for() -> None:
    for target in (
        {"topic": "t", "value": "text"},
        {"topic": "t", "value": "cloudevents-structured", "content_type": "text/plain"},
    ):
        refusal = refused(router(route("r", target)).route(7, stored(body=b"ok\xff")))
        assert refusal.reason is Reason.NOT_TEXT
    assert "byte 2" in refusal.detail


@pytest.mark.parametrize("value", ["cloudevents-structured", "cloudevents-binary"])
def test_a_body_that_is_said_to_be_json_must_be(value: str) -> None:
    target = {"topic": "t", "value": value, "content_type": "application/json"}
    for body in (b"{", b"\xff", b"NaN", b"[" * 100_000):
        assert refused(router(route("r", target)).route(7, stored(body=body))).reason is Reason.NOT_JSON


def test_cloudevents_have_their_attributes_in_the_value_or_in_headers() -> None:
    data = encode_message(Message("a.b", b'{"x":1}', timestamp=1_700_000_000_123))
    facts = {"specversion": "1.0", "id": "7", "source": "/kafka-journal/flights", "type": "landed", "subject": "a.b"}
    facts["time"] = "2023-11-14T22:13:20.123Z"
    target = {"topic": "t", "event_type": "landed", "content_type": "application/json"}
    structured = only(router(route("r", target | {"value": "cloudevents-structured"})).route(7, data))
    assert json.loads(structured.value or b"") == facts | {"datacontenttype": "application/json", "data": {"x": 1}}
    assert dict(structured.headers)["content-type"] == b"application/cloudevents+json; charset=UTF-8"
    binary = only(router(route("r", target | {"value": "cloudevents-binary"})).route(7, data))
    assert binary.value == b'{"x":1}'
    assert {name: value.decode() for name, value in binary.headers if name.startswith("ce_") and value} == {
        f"ce_{name}": value for name, value in facts.items()
    }
    assert dict(binary.headers)["content-type"] == b"application/json"


def test_the_envelope_has_text_as_text_and_the_rest_in_base64() -> None:
    target = {"topic": "t", "value": "json", "headers": ["a", "b"]}
    out = only(router(route("r", target)).route(7, stored(body=b"\xff", a=1.5, b=b"\x00", c="left out")))
    assert json.loads(out.value or b"") == {
        "id": 7,
        "address": "a",
        "priority": 4,
        "properties": {"a": 1.5, "b": {"base64": "AA=="}},
        "body_base64": "/w==",
    }


def test_a_record_over_its_topics_limit_is_refused_before_it_is_sent() -> None:
    limits = {"t": 3000}
    routes = Router(config(routes=[route()]), journal="flights", own_topics=OWN, bytes_max=limits)
    assert refused(routes.route(7, stored(body=b"x" * 3000))).reason is Reason.TOO_LARGE
    limits["t"] = 4000
    assert only(routes.route(7, stored(body=b"x" * 3000))).topic == "t"


def test_a_large_body_is_read_if_its_topic_takes_it_and_it_can_be_had() -> None:
    chunked = encode_message(Message("a"), chunks=[11, 12], body_bytes=6)
    there = {(11, 12): b"sixby!"}
    routes = Router(config(routes=[route()]), journal="f", own_topics=OWN).reading(lambda ids: there.get(tuple(ids)))
    assert only(routes.route(7, chunked)).value == b"sixby!"
    there.clear()
    assert refused(routes.route(7, chunked)).reason is Reason.NO_BODY
    assert refused(router(route()).route(7, chunked)).reason is Reason.NO_BODY
    larger = encode_message(Message("a"), chunks=[11], body_bytes=2_000_000)
    assert refused(routes.route(7, larger)).reason is Reason.TOO_LARGE


def test_a_message_does_not_go_back_to_the_topic_that_it_came_from() -> None:
    routes = router(route("r", {"topic": "t"}, {"topic": "u"}))
    back, on = routes.route(7, stored(**{"kafka.topic": "t"}))
    assert isinstance(back, RouteRefusal)
    assert (back.reason, back.on_error) == (Reason.RETURNED, OnError.SKIP)
    assert isinstance(on, OutgoingRecord)


@pytest.mark.parametrize(("counts", "goes"), [((1, 1), True), ((1, 2), False), ((2**62, 0), False), ((-5, 2), True)])
def test_a_message_goes_out_of_journals_so_often_and_no_more(counts: tuple[int, int], goes: bool) -> None:
    trail = {"_jmsbr_x_hops": counts[0], "_jmsbr_y_hops": counts[1], "jmsbridge.origin": "x"}
    [out] = router(route(), hops_max=3).route(7, stored(headers=trail))
    assert isinstance(out, OutgoingRecord) is goes
    if isinstance(out, OutgoingRecord):
        assert dict(out.headers)["jmsbridge.origin"] == b"x"
    else:
        assert (out.reason, out.on_error) == (Reason.HOPS, OnError.FAIL)


def test_a_request_goes_out_with_what_its_reply_needs() -> None:
    routes = router(route("r", {"topic": "t", "reply_topic": "replies", "headers": []}))
    assert only(routes.route(7, stored())).request is None
    asked = only(routes.route(7, stored(headers={"JMSReplyTo": "temp.1"})))
    assert asked.request == ("7", "temp.1")
    headers = dict(asked.headers)
    assert headers["jms.string.JMSCorrelationID"] == b"7"
    assert headers["jms.string.JMSReplyTo"] == b"temp.1"
    assert headers["kafka_replyTopic"] == b"replies"
    own = only(routes.route(7, stored(headers={"JMSReplyTo": "temp.1", "JMSCorrelationID": "c"})))
    assert own.request == ("c", "temp.1")
    every = only(
        router(route("r", {"topic": "t", "reply_topic": "replies"})).route(7, stored(headers={"JMSReplyTo": "z"}))
    )
    assert len(dict(every.headers)) == len(every.headers)


def test_a_replayed_message_says_so() -> None:
    for key in ("message-id", "header:k"):
        replaying = router(route("r", {"topic": "t", "key": key}), replay_of="r")
        assert ("kafka-journal.replayed", b"true") in only(replaying.route(7, stored(k="v"))).headers
    assert "kafka-journal.replayed" not in dict(only(router(route()).route(7, stored())).headers)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 275646681),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        ("é".encode() * 9, 617750428),
    ],
)
def test_a_keys_partition_is_the_one_that_javas_clients_choose(key: bytes, hashed: int) -> None:
    """The hashes are those of the tests of Kafka's Java client, whose partitions are numbered by 31 bits of them."""
    for partitions in (12, 2**31 - 1):
        outgoing = OutgoingRecord("r", "t", key, b"", [], parse_rule("murmur2"), 29)
        assert partition_of(outgoing, partitions) == (hashed & 0x7FFFFFFF) % partitions


def test_a_partition_follows_from_the_rule_the_key_and_the_message() -> None:
    def at(rule: str, key: bytes | None, partitions: int = 12) -> int:
        return partition_of(OutgoingRecord("r", "t", key, b"", [], parse_rule(rule), 29), partitions)

    assert at("murmur2", b"k") == 8
    assert at("crc32", b"k") == confluent_kafka.consistent(b"k", 12)
    assert at("murmur2", None) == at("crc32", None) == at("message-id", b"k") == 29 % 12
    assert at("partition:5", b"k") == 5
    with pytest.raises(UnfitError, match="no partition 12"):
        at("partition:12", b"k")
    assert parse_rule("partition:5") == PartitionRule("partition", 5)
