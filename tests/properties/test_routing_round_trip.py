"""What goes out of one journal and into another is the message that it was, with its trail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.routing.config import RoutingConfig
from journal.routing.headers import KAFKA_FACTS
from journal.routing.outcomes import OutgoingRecord
from journal.routing.record_in import Sources
from journal.routing.router import Router
from journal.routing.source_record import SourceRecord
from journal.store.message_records import encode_message
from journal.store.model import Message, Value

HERE, THERE = "sends", "takes"
ORIGIN_HEADERS = {"jmsbridge.origin": HERE, "_jmsbr_sends_hops": 1}
PAIRS = {
    "body": "body",
    "text": "text",
    "json": "json",
    "cloudevents-binary": "cloudevents",
    "cloudevents-structured": "cloudevents",
}

values: st.SearchStrategy[Value] = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=10), st.binary(max_size=10)
)
names = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10),  # with a NUL they are refused
    st.sampled_from(
        ["JMSCorrelationID", "JMSType", "JMSXGroupID", "JMS_x", "JMSMessageID", "JMSPriority", "long.x", "a.b", "_x"]
    ),
)
times = st.one_of(st.just(0), st.integers(1, 2**63 - 1))
bodies = st.one_of(st.binary(max_size=50), st.text(max_size=50).map(str.encode))
messages = st.builds(
    Message,
    address=st.text(min_size=1, max_size=20).filter(lambda address: "://" not in address),
    body=bodies,
    headers=st.dictionaries(names, values, max_size=4),
    properties=st.dictionaries(names, values, max_size=4),
    priority=st.integers(0, 9),
    timestamp=times,
    expires=times,
    due=times,
)


def routed(conversion: str, content_type: str) -> Router:
    target = {"topic": "t", "value": conversion, "content_type": content_type}
    config = RoutingConfig.model_validate({"routes": [{"name": "all", "targets": [target]}]})
    return Router(config, journal=HERE, own_topics=frozenset())


def taken(conversion: str) -> Sources:
    source = {
        "name": "s",
        "topics": ["t"],
        "value": PAIRS[conversion],
        "address": "{JMSDestination}",
        "headers": ["jms.*", "kafka-journal.*"],
    }
    config = RoutingConfig.model_validate({"sources": [source]})
    return Sources(config, journal=THERE, own_topics=frozenset())


def plain(message: Message) -> str:
    """NaN is not itself; its text is. Dictionaries in one order."""
    parts = [message.address, message.body, message.priority, message.timestamp, message.expires, message.due]
    return repr([*parts, sorted(message.headers.items()), sorted(message.properties.items())])


@given(messages, st.sampled_from(sorted(PAIRS)), st.sampled_from(["application/octet-stream", "text/plain"]))
def test_out_and_in_again_is_the_message_with_its_trail(message: Message, conversion: str, content_type: str) -> None:
    needs_text = conversion == "text" or (conversion == "cloudevents-structured" and content_type == "text/plain")
    if needs_text and message.body.decode(errors="replace").encode() != message.body:
        return
    [out] = routed(conversion, content_type).route(7, encode_message(message))
    assert isinstance(out, OutgoingRecord)
    record = SourceRecord(out.topic, 3, 4, 0, out.key, out.value, out.headers)
    back = taken(conversion).convert(record)
    assert isinstance(back, Message), back
    assert back.properties["kafka.topic"] == "t"
    own = {name: value for name, value in back.properties.items() if name not in KAFKA_FACTS}
    same = Message(
        message.address,
        message.body,
        {**message.headers, **ORIGIN_HEADERS},
        message.properties,
        message.priority,
        message.timestamp,
        message.expires,
        message.due,
    )
    got = Message(back.address, back.body, back.headers, own, back.priority, back.timestamp, back.expires, back.due)
    assert plain(got) == plain(same)


@given(messages)
def test_the_same_message_gives_the_same_records(message: Message) -> None:
    first, second = encode_message(message), encode_message(message)
    router = routed("json", "text/plain")
    assert router.route(7, first) == router.route(7, second) == routed("json", "text/plain").route(7, first)


@given(messages)
def test_what_the_second_journal_sends_on_is_refused_by_the_first(message: Message) -> None:
    [out] = routed("body", "text/plain").route(7, encode_message(message))
    assert isinstance(out, OutgoingRecord)
    back = taken("body").convert(SourceRecord("t", 0, 0, 0, out.key, out.value, out.headers))
    assert isinstance(back, Message)
    config = RoutingConfig.model_validate({"routes": [{"name": "on", "targets": [{"topic": "u"}]}]})
    [on] = Router(config, journal=THERE, own_topics=frozenset()).route(8, encode_message(back))
    assert isinstance(on, OutgoingRecord)
    again = RoutingConfig.model_validate({"sources": [{"name": "s", "topics": ["u"]}]})
    refused = Sources(again, journal=HERE, own_topics=frozenset()).convert(
        SourceRecord("u", 0, 0, 0, on.key, on.value, on.headers)
    )
    assert not isinstance(refused, Message)
    assert refused.reason.value == "returned"
