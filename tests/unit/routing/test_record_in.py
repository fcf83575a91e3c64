"""The way in: which topics are sources, what a record becomes, and what is refused."""

from __future__ import annotations

import struct

import pytest

from journal.errors import StateError
from journal.routing.outcomes import Header, OnError, Reason, RouteRefusal
from journal.routing.record_in import Sources
from journal.routing.source_record import SourceRecord
from journal.store.incoming import PlainRun
from journal.store.message_records import decode_message, encode_message
from journal.store.model import Message
from tests.unit.routing.building import OWN, config, record, source, taking


def taken(got: Message | RouteRefusal) -> Message:
    assert isinstance(got, Message), got
    return got


def refusal(got: Message | RouteRefusal) -> RouteRefusal:
    assert isinstance(got, RouteRefusal), got
    return got


def test_a_plain_record_becomes_a_message_that_says_where_it_was() -> None:
    message = taken(taking(address="corrections.{topic}").convert(record(b"v", key=b"k")))
    assert (message.address, message.body, message.timestamp) == ("corrections.in", b"v", 1_700_000_000_000)
    assert message.properties == {"kafka.topic": "in", "kafka.partition": 3, "kafka.offset": 17, "kafka.key": b"k"}
    assert taken(taking().convert(record(None))).body == b""


def test_headers_of_the_jms_bridge_and_of_others_are_turned_back() -> None:
    headers: list[Header] = [
        ("jms.int.n", struct.pack(">i", -5)),
        ("jms.short.h", struct.pack(">h", 6)),
        ("jms.float.f", struct.pack(">f", 0.5)),
        ("jms.boolean.b", b"TRUE"),
        ("jms.JMSCorrelationID", b"c"),
        ("jms.string.JMSReplyTo", b"queue://r"),
        ("jms.untyped", b"\x01"),
        ("jms.int.JMSPriority", struct.pack(">i", 9)),
        ("jms.long.JMSMessageID", struct.pack(">q", 99)),
        ("traceparent", b"00-1"),
        ("raw", b"\xff"),
        ("null", None),
        ("twice", b"1"),
        ("twice", b"2"),
        ("_jmsbr_other_hops", struct.pack(">i", 2)),
        ("jmsbridge.origin", b"other"),
    ]
    message = taken(taking().convert(record(b"v", headers)))
    assert message.headers == {
        "JMSCorrelationID": "c",
        "JMSReplyTo": "queue://r",
        "jmsbridge.origin": "other",
        "_jmsbr_other_hops": 2,
    }
    own = {name: value for name, value in message.properties.items() if not name.startswith("kafka.")}
    assert own == {
        "n": -5, "h": 6, "f": 0.5, "b": True, "untyped": b"\x01", "traceparent": "00-1", "raw": b"\xff", "twice": "2"
    }  # fmt: skip
    assert message.priority == 9


def test_only_the_headers_that_a_source_takes_are_taken_and_the_trail_always() -> None:
    headers: list[Header] = [("a", b"1"), ("b", b"2"), ("_jmsbr_x_hops", struct.pack(">i", 1))]
    message = taken(taking(headers=["a"]).convert(record(b"v", headers)))
    assert ("a" in message.properties, "b" in message.properties) == (True, False)
    assert message.headers == {"_jmsbr_x_hops": 1}


@pytest.mark.parametrize(
    "header",
    [
        ("jms.long.n", b"short"),
        ("jms.boolean.b", b"yes"),
        ("jms.string.s", b"\xff"),
        ("jms.int.JMSPriority", struct.pack(">i", 10)),
        ("jms.string.JMSPriority", b"9"),
        ("jms.long.JMSExpiration", struct.pack(">q", -1)),
        ("_jmsbr_x_hops", b""),
        ("_jmsbr_x_hops", struct.pack(">i", -1)),
    ],
)
def test_a_header_that_is_not_of_its_type_is_a_refusal(header: Header) -> None:
    assert refusal(taking().convert(record(b"v", [header]))).reason is Reason.BAD_HEADER


def test_what_this_journal_sent_out_is_passed_over_and_what_goes_round_is_refused() -> None:
    back = refusal(taking().convert(record(b"v", [("_jmsbr_flights_hops", struct.pack(">i", 1))])))
    assert (back.reason, back.on_error) == (Reason.RETURNED, OnError.SKIP)
    around: list[Header] = [(f"_jmsbr_j{number}_hops", struct.pack(">i", 3)) for number in range(3)]
    assert refusal(taking().convert(record(b"v", around))).reason is Reason.HOPS
    assert taken(taking().convert(record(b"v", around[:2]))).headers["_jmsbr_j1_hops"] == 3


def test_whatever_a_conversion_raises_is_a_refusal_of_its_record_alone() -> None:
    def replies(source: str, correlation_id: str) -> str | None:
        raise ZeroDivisionError("no such thing")

    sources = config(sources=[source(replies=True), source("other", topics=["out"])])
    both = Sources(sources, journal="flights", own_topics=OWN, replies=replies)
    asked = refusal(both.convert(record(b"", headers=[("jms.string.JMSCorrelationID", b"1")])))
    assert (asked.route, asked.reason, asked.detail) == ("s", Reason.UNEXPECTED, "ZeroDivisionError: no such thing")
    assert taken(both.convert(record(b"v", topic="out"))).body == b"v"


def test_a_refusal_says_no_more_of_a_record_than_is_read() -> None:
    endless: Header = ("kafka-journal.header.string.JMSPriority", b"x" * 800_000)
    found = refusal(taking(address="{no}").convert(record(b"", headers=[endless, ("jms.string." + "n" * 9999, b"")])))
    assert len(found.detail) < 1100
    value = b'{"body":"","priority":' + b"9" * 4000 + b"}"
    found = refusal(taking(value="json").convert(record(value)))
    assert found.reason is Reason.BAD_HEADER
    assert len(str(found)) < 1200


def test_a_records_own_facts_go_before_headers_of_their_names() -> None:
    names = ("address", "JMSDestination", "JMSPriority", "JMSTimestamp", "topic", "key")
    headers = [(f"kafka-journal.{place}.string.{name}", b"evil") for name in names for place in ("header", "property")]
    template = "{topic}.{key}.{JMSPriority}.{JMSTimestamp}"
    assert taken(taking(address=template).convert(record(b"", key=b"k", headers=headers))).address == (
        "in.k.4.1700000000000"
    )
    for name in ("address", "JMSDestination"):
        said = [*headers, ("jms.string.JMSDestination", b"queue://said")]
        assert taken(taking(address=f"to.{{{name}}}").convert(record(b"", headers=said))).address == "to.said"
        assert (
            refusal(taking(address=f"to.{{{name}}}").convert(record(b"", headers=headers))).reason is Reason.NO_HEADER
        )


def test_an_address_is_a_template_of_topic_key_and_headers() -> None:
    headers: list[Header] = [("jms.string.JMSDestination", b"topic://a.b"), ("region", b"eu")]
    at = taking(address="{JMSDestination}.{topic}.{key}.{region}")
    assert taken(at.convert(record(b"v", headers, key=b"k"))).address == "a.b.in.k.eu"
    missing = refusal(at.convert(record(b"v", headers)))
    assert (missing.reason, "'key'" in missing.detail) == (Reason.NO_HEADER, True)
    empty = taking(address="{region}")
    assert refusal(empty.convert(record(b"v", [("region", b"")]))).reason is Reason.BAD_ADDRESS


@pytest.mark.parametrize(
    ("conversion", "value", "reason"),
    [
        ("text", b"\xff", Reason.NOT_TEXT),
        ("json", b"{", Reason.NOT_JSON),
        ("json", b"[" * 100_000, Reason.NOT_JSON),
        ("json", b"[]", Reason.NOT_ENVELOPE),
        ("json", b"{}", Reason.NOT_ENVELOPE),
        ("json", b'{"body":"x","body_base64":""}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":5}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"\\ud800"}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"x","address":"\\ud800"}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"x","headers":{"JMS\\udfff":1}}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"x","properties":{"\\ud800":"x"}}', Reason.NOT_ENVELOPE),
        ("json", b'{"body_base64":"?"}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"","properties":[]}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"","properties":{"a":[]}}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"","headers":{"a":9223372036854775808}}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"","properties":{"a":1e999}}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"","priority":true}', Reason.NOT_ENVELOPE),
        ("json", b'{"body":"","priority":10}', Reason.BAD_HEADER),
        ("cloudevents", b"{}", Reason.NOT_CLOUDEVENT),
    ],
)
def test_a_value_that_is_not_what_its_source_says_is_a_refusal(conversion: str, value: bytes, reason: Reason) -> None:
    assert refusal(taking(value=conversion).convert(record(value))).reason is reason


@pytest.mark.parametrize(
    ("event", "body"),
    [
        (b'"datacontenttype":"application/json","data":{"x":[1, 2]}', b'{"x":[1,2]}'),
        (b'"data":"text"', b'"text"'),
        (b'"datacontenttype":"text/plain","data":"text"', b"text"),
        (b'"data_base64":"/w=="', b"\xff"),
        (b'"subject":"s"', b""),
        (b'"subject":null', b""),
        (b'"subject":null,"datacontenttype":null,"data":"text"', b'"text"'),
        (b'"data":null', b"null"),
        (b'"data_base64":null,"data":{}', b"{}"),
    ],
)
def test_a_structured_event_gives_its_data_and_attributes(event: bytes, body: bytes) -> None:
    value = b'{"specversion":"1.0","id":"i","source":"s","type":"t",%s}' % event
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    message = taken(taking(value="cloudevents").convert(record(value, headers)))
    assert message.body == body
    assert (message.properties["ce_id"], message.properties["ce_type"]) == ("i", "t")
    assert message.properties.get("ce_subject") == ("s" if b'"s"' in event else None)
    assert refusal(taking(value="cloudevents").convert(record(b'{"id":"i"}', headers))).reason is Reason.NOT_CLOUDEVENT


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (b'"type":null', Reason.NOT_CLOUDEVENT),
        (b'"extension":[]', Reason.NOT_CLOUDEVENT),
        (b'"extension":1e999', Reason.NOT_CLOUDEVENT),
        (b'"extension":"\\ud800"', Reason.NOT_CLOUDEVENT),
        (b'"\\ud800":"x"', Reason.NOT_CLOUDEVENT),
        (b'"data_base64":"?"', Reason.NOT_CLOUDEVENT),
        (b'"data_base64":5', Reason.NOT_CLOUDEVENT),
        (b'"datacontenttype":"text/plain","data":"\\ud800"', Reason.NOT_CLOUDEVENT),
        (b'"data":{"x":-1e999}', Reason.NOT_CLOUDEVENT),
        (b'"data":"\\ud800"', Reason.NOT_TEXT),
        (b'"data":NaN', Reason.NOT_JSON),
    ],
)
def test_a_structured_event_that_is_none_is_refused_as_such(event: bytes, reason: Reason) -> None:
    value = b'{"specversion":"1.0","id":"i","source":"s","type":"t",%s}' % event
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    assert refusal(taking(value="cloudevents").convert(record(value, headers))).reason is reason


def test_an_events_data_nested_as_deep_as_json_is_read_is_taken_or_refused() -> None:
    headers: list[Header] = [("content-type", b"application/cloudevents+json")]
    for depth in range(800, 1000):
        data = b"[" * depth + b"]" * depth
        value = b'{"specversion":"1.0","id":"i","source":"s","type":"t","data":%s}' % data
        got = taking(value="cloudevents").convert(record(value, headers))
        assert isinstance(got, RouteRefusal) or got.body == data


def test_a_reply_goes_where_the_request_said_or_where_it_says_itself() -> None:
    waiting = {"c": "temp.1"}
    sources = Sources(
        config(sources=[source(replies=True, headers=[], on_error="dead-letter", dead_letter_topic="dead")]),
        journal="flights",
        own_topics=OWN,
        replies=lambda source, correlation_id: waiting.get(correlation_id),
    )
    correlated: Header = ("jms.string.JMSCorrelationID", b"c")
    destination: Header = ("jms.JMSDestination", b"temp-queue://temp.2")
    message = taken(sources.convert(record(b"v", [correlated, destination])))
    assert (message.address, message.headers["JMSCorrelationID"]) == ("temp.1", "c")
    waiting.clear()
    assert taken(sources.convert(record(b"v", [correlated, destination]))).address == "temp.2"
    unmatched = refusal(sources.convert(record(b"v", [correlated], key=b"k")))
    assert unmatched.reason is Reason.NO_REQUEST
    letter = unmatched.dead_letter
    assert letter is not None
    assert (letter.topic, letter.key, letter.value, letter.headers[0]) == ("dead", b"k", b"v", correlated)


def test_a_pattern_never_takes_the_journals_own_or_internal_topics() -> None:
    sources = taking(topics=[], pattern=".*")
    existing = [
        "orders",
        "flights.wal",
        "flights.table",
        "flights.control",
        "flights.agent.alerts",
        "kafka-journal.flights.worker-mine-changelog",
        "__consumer_offsets",
        "x__assignor-__leader",
    ]
    found = sources.topics(existing)
    assert [(topic, each.name) for topic, each in found.items()] == [("orders", "s")]
    with pytest.raises(StateError, match=r"flights\.wal"):
        sources.convert(record(topic="flights.wal"))


def encode(sources: Sources, of: SourceRecord, *, bytes_max: int = 1000) -> PlainRun | None:
    return sources.encode([of], 0, 1, bytes_max, 1000)


def encoded(sources: Sources, of: SourceRecord) -> tuple[str, bytes]:
    """A plain record's address and message, which are what the long way makes."""
    found, message = encode(sources, of), taken(sources.convert(of))
    assert found == PlainRun(message.address, [encode_message(message)], [of.timestamp])
    return found.address, found.data[0]


def test_a_record_with_plain_headers_is_encoded_at_once() -> None:
    headers: list[Header] = [
        ("jms.string.region", b"eu"),
        ("jms.long.count", b"\0\0\0\0\0\0\0\x07"),
        ("jms.boolean.fragile", b"true"),
        ("jms.double.price", b"\x3f\xf0\0\0\0\0\0\0"),
        ("jms.bytes.raw", b"\xff" * 100),
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("binary", b"\xff"),
    ]
    sources = taking(address="orders")
    for key in (None, b"", b"k" * 200):
        for number in (0, 63, 64, 8191, 8192, 2**40, 2**62):
            of = record(b"v", headers, key=key)._replace(offset=number)
            message = decode_message(encoded(sources, of)[1])
            assert message.properties["raw"] == b"\xff" * 100
            assert (message.properties["binary"], message.properties["traceparent"][:3]) == (b"\xff", "00-")  # type: ignore[index]
            assert message.properties["kafka.offset"] == number
            assert message.properties.get("kafka.key") == key
    assert encoded(sources, record(None)._replace(timestamp=0, partition=4))


@pytest.mark.parametrize(("address", "found"), [("kafka.{topic}", "kafka.in"), ("{topic[0]}", "in"), ("a", "a")])
def test_a_record_whose_address_follows_from_its_topic_is_encoded_at_once(address: str, found: str) -> None:
    assert encoded(taking(address=address), record(b"v", [("jms.string.region", b"eu")]))[0] == found


@pytest.mark.parametrize(
    "changed", [{"address": "{topic}.{key}"}, {"address": "{topic[1]}"}, {"value": "text"}, {"replies": True}]
)
def test_what_a_source_makes_of_more_than_headers_is_not_encoded_at_once(changed: dict[str, object]) -> None:
    assert encode(taking(**{"address": "orders"} | changed), record(b"v")) is None  # type: ignore[arg-type]


def test_a_value_over_the_limit_is_not_encoded_at_once() -> None:
    sources = taking(address="orders")
    assert encode(sources, record(b"v" * 10), bytes_max=10) is not None
    assert encode(sources, record(b"v" * 11), bytes_max=10) is None


def test_a_header_that_comes_twice_is_its_last_value() -> None:
    twice = record(b"v", [("jms.string.region", b"eu"), ("jms.string.region", b"us")])
    sources = taking(address="orders")
    assert encode(sources, twice) is None
    assert taken(sources.convert(twice)).properties["region"] == "us"


@pytest.mark.parametrize(
    "header",
    [
        ("_jmsbr_other_hops", b"\0\0\0\x01"),
        ("jms.string.JMSCorrelationID", b"c"),
        ("jms.int.JMSPriority", b"\0\0\0\x09"),
        ("kafka-journal.header.string.h", b"x"),
        ("_AMQ_DUPL_ID", b"d"),
    ],
)
def test_a_header_that_is_no_plain_property_is_seen_behind_ones_that_are(header: Header) -> None:
    sources = taking(address="orders")
    plain: Header = ("jms.string.region", b"eu")
    for headers in ([plain, header], [header, plain]):
        assert encoded(sources, record(b"v", [plain]))
        assert encode(sources, record(b"v", headers)) is None


def test_a_plain_header_with_a_bad_value_is_refused() -> None:
    sources = taking(address="orders")
    for name in ("jms.long.count", "jms.boolean.count"):
        assert encoded(sources, record(b"v", [(name, b"true\0\0\0\0" if "long" in name else b"true")]))
        for bad in (b"no", None):
            assert encode(sources, record(b"v", [(name, bad)])) is None
        assert refusal(sources.convert(record(b"v", [(name, b"no")]))).reason is Reason.BAD_HEADER
        assert name.rpartition(".")[2] not in taken(sources.convert(record(b"v", [(name, None)]))).properties
