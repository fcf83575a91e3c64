"""A record that is encoded at once is the message that the long way makes of it."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from journal.routing.config import RoutingConfig
from journal.routing.record_in import Sources
from journal.routing.source_record import SourceRecord
from journal.store.message_records import encode_message
from journal.store.model import Message

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


BYTES_MAX = 250
plain_records = st.builds(
    SourceRecord,
    topic=st.sampled_from(["in", "in.2"]),
    partition=st.integers(0, 1),
    offset=st.integers(0, 2**40),
    timestamp=st.integers(-1, 2**40),
    key=st.one_of(st.none(), st.binary(max_size=20)),
    value=st.binary(max_size=BYTES_MAX),
    headers=st.sampled_from([[], [("jms.string.region", b"eu")], [("plain", b"x"), ("jms.boolean.z", b"true")]]),
)


addresses = st.sampled_from(["orders", "kafka.{topic}", "{topic[1]}", "{topic}.{key}", "{region}"])


def sources(address: str) -> Sources:
    source = {"name": "s", "topics": ["in", "in.2", "t" * 200], "address": address}
    return Sources(RoutingConfig.model_validate({"sources": [source]}), journal="takes", own_topics=frozenset())


@given(addresses, st.lists(st.one_of(records, plain_records), min_size=1, max_size=12), st.integers(0, 600))
def test_what_is_encoded_at_once_is_what_the_long_way_makes(address: str, taken: list[SourceRecord], room: int) -> None:
    taking = sources(address)
    taken = [*taken, *taken]
    place = 0
    while place < len(taken):
        run = taking.encode(taken, place, len(taken), BYTES_MAX, room)
        if run is None:
            place += 1
            continue
        of = taken[place : place + len(run.data)]
        for record, data, timestamp in zip(of, run.data, run.timestamps, strict=True):
            message = taking.convert(record)
            assert isinstance(message, Message)
            assert (run.address, data, timestamp) == (message.address, encode_message(message), message.timestamp)
            assert message == Message(message.address, message.body, {}, message.properties, 4, message.timestamp)
        assert len({(record.topic, record.partition) for record in of}) == 1
        assert max(len(record.value or b"") for record in of) <= BYTES_MAX
        assert sum(map(len, run.data[:-1])) <= room
        place += len(of)


@given(st.lists(plain_records, min_size=1, max_size=12), st.integers(1, 12))
def test_a_run_ends_where_its_partition_or_what_is_asked_for_does(taken: list[SourceRecord], end: int) -> None:
    end = min(end, len(taken))
    run = sources("orders").encode(taken, 0, end, BYTES_MAX, 10**6)
    of = (taken[0].topic, taken[0].partition)
    same = list(takewhile(lambda record: (record.topic, record.partition) == of, taken[:end]))
    assert run is not None
    assert len(run.data) == len(same)
