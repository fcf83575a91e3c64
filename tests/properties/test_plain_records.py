"""A record that is encoded at once is the message that the long way makes of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.routing.config import RoutingConfig
from journal.routing.ingress import Ingress, SourceRecord
from journal.store.incoming import Incoming
from journal.store.model import Message
from journal.store.records import encode_message

TYPES = ["string", "boolean", "byte", "short", "int", "long", "float", "double", "bytes", "unknown"]
NAMES = ["a", "region", "kafka", "kafka.key", "kafka.offset", "kafka.p", "kafka.topic", "kafka.topics", "z", "JMSType"]

header_names = st.one_of(
    st.builds("jms.{}.{}".format, st.sampled_from(TYPES), st.sampled_from(NAMES)),
    st.sampled_from(["jms.string._AMQ_DUPL_ID", "plain", "_jmsbr_other_hops", "jms.string.", "jmsbridge.origin"]),
    st.text(st.characters(codec="utf-8"), max_size=5),
)
header_values = st.one_of(
    st.none(),
    st.binary(max_size=9),
    st.sampled_from(
        [
            b"true",
            b"false",
            b"\xff",
            b"\0\0\0\x01",
            b"\0" * 8,
            b"\x7f\xf8\0\0\0\0\0\0",
            b"x" * 100,
            b"\x80\0\0\0\0\0\0\0",
        ]
    ),
)
records = st.builds(
    SourceRecord,
    topic=st.sampled_from(["in", "in.2", "t" * 200]),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.integers(-1, 2**63 - 1),
    key=st.one_of(st.none(), st.binary(max_size=200)),
    value=st.one_of(st.none(), st.binary(max_size=300)),
    headers=st.one_of(st.none(), st.lists(st.tuples(header_names, header_values), max_size=5)),
)


addresses = st.sampled_from(["orders", "kafka.{topic}", "{topic[1]}", "{topic}.{key}", "{region}"])


def sources(address: str) -> Ingress:
    source = {"name": "s", "topics": ["in", "in.2", "t" * 200], "address": address}
    return Ingress(RoutingConfig.model_validate({"sources": [source]}), journal="takes", own_topics=frozenset())


@given(addresses, st.lists(records, min_size=1, max_size=8))
def test_what_is_encoded_at_once_is_what_the_long_way_makes(address: str, taken: list[SourceRecord]) -> None:
    ingress = sources(address)
    for record in [*taken, *taken]:
        message = ingress.convert(record)
        found = ingress.encode(record)
        if found is not None:
            assert isinstance(message, Message)
            assert found == Incoming(message.address, encode_message(message), message.timestamp, None)
            assert message == Message(message.address, message.body, {}, message.properties, 4, message.timestamp)
