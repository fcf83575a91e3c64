"""Records of Kafka topics become messages, exactly once, each by its source's policy."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition, cimpl
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # it re-exports them

from journal.config import Settings
from journal.errors import FullError, InvalidOperationError
from journal.kafka.clients import kafka_of
from journal.kafka.groups import metadata_of
from journal.kafka.settings import ClientSettings
from journal.limits import Limits
from journal.routing.config import RoutingConfig
from journal.sources.consumer import SourceConsumer
from journal.store.model import Message, QueueConfig, Routing
from journal.store.store import MessageStore
from journal.topics.control_reading import read_control
from journal.topics.names import sources_group
from journal.v1.journal_pb2 import SourceReport
from tests.support.in_process import made_journal, running_worker
from tests.support.sources import (
    DEADLINE_S,
    committed,
    create_topic,
    delete_topic,
    new_name,
    produce,
    read_topic,
    ready,
    taking,
    trim_topic,
    wait_until,
)
from tests.support.stores import blocked_writer, bodies

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

ORDERS = QueueConfig("orders", "orders")


@pytest.fixture(scope="module")
def journal(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """One journal, and its worker, for the tests of this module: each has topics and an address of its own."""
    settings = made_journal(bootstrap, tmp_path_factory.mktemp("sources"), shards=2)
    with running_worker(settings):
        yield settings


def with_sources(settings: Settings, *sources: dict[str, Any], **routing: Any) -> Settings:
    """The settings of a journal that takes records from these sources."""
    config = RoutingConfig.model_validate({"sources": list(sources), **routing})
    return settings.model_copy(update={"routing": config})


def numbers(first: int, count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(first, first + count)]


def queue(name: str, **more: Any) -> QueueConfig:
    """A queue of the address of that name."""
    return QueueConfig(name, more.pop("address", name), **more)


def produce_with_header_name(bootstrap: str, topic: str, name: bytes) -> None:
    """A record with a header of any name, which librdkafka sends and no client for Python."""
    kafka, reason = ctypes.CDLL(cimpl.__file__), ctypes.create_string_buffer(512)
    kafka.rd_kafka_conf_new.restype = kafka.rd_kafka_new.restype = ctypes.c_void_p
    config = ctypes.c_void_p(kafka.rd_kafka_conf_new())
    assert kafka.rd_kafka_conf_set(config, b"bootstrap.servers", bootstrap.encode(), reason, len(reason)) == 0
    producer = ctypes.c_void_p(kafka.rd_kafka_new(0, config, reason, len(reason)))
    try:
        to_topic = (ctypes.c_int(1), topic.encode())  # a part of the record's is its number in rdkafka.h, and itself
        value = (ctypes.c_int(4), b"v", ctypes.c_size_t(1))
        header = (ctypes.c_int(9), name, b"v", ctypes.c_ssize_t(1))
        end = ctypes.c_int(0)
        assert kafka.rd_kafka_producev(producer, *to_topic, *value, *header, end) == 0
        assert kafka.rd_kafka_flush(producer, ctypes.c_int(30_000)) == 0
    finally:
        kafka.rd_kafka_destroy(producer)


# ---- records and offsets -----------------------------------------------------------------------------------------


def test_records_become_messages_and_their_offsets_are_committed(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 250), headers={"jms.string.region": b"eu"})
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "orders"})
    with taking(settings, [ORDERS]) as node:
        node.wait_for("orders", 250)
        assert bodies(node.store, "orders") == numbers(0, 250)
        first = node.store.message(next(node.store.browse("orders", 1)).message)
        assert (first.properties["region"], first.properties["kafka.offset"]) == ("eu", 0)
    assert committed(settings)[topic, 0] == 250
    produce(bootstrap, topic, numbers(250, 10))
    with taking(settings) as node:
        node.wait_for("orders", 260)
        assert bodies(node.store, "orders") == numbers(0, 260)


def test_a_message_goes_to_the_queues_that_take_it_and_a_large_one_as_a_sent_one_does(
    bootstrap: str, journal: Settings
) -> None:
    topic = create_topic(bootstrap, new_name(), config={"max.message.bytes": "2000000"})
    queues = [
        queue("fan-all", address="fan", routing=Routing.MULTICAST),
        queue("fan-eu", address="fan", routing=Routing.MULTICAST, filter="region = 'eu'"),
        queue("fan-one", address="fan"),
        queue("fan-other", address="fan"),
    ]
    large = b"x" * 700_000
    produce(bootstrap, topic, [b"a", large], headers={"jms.string.region": b"eu"})
    produce(bootstrap, topic, [b"b"], headers={"jms.string.region": b"us"})
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "fan"})
    with taking(settings, queues) as node:
        node.wait_for("fan-all", 3)
        assert bodies(node.store, "fan-all") == [b"a", large, b"b"]
        assert bodies(node.store, "fan-eu") == [b"a", large]
        assert ready(node.store, "fan-one") + ready(node.store, "fan-other") == 3
        assert {ready(node.store, "fan-one"), ready(node.store, "fan-other")} == {1, 2}


def test_a_duplicate_is_taken_in_once_in_the_next_activation_too(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    with taking(journal) as node:
        node.store.create_address("once", duplicate_window=10)
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "once"})
    known = {"_AMQ_DUPL_ID": b"d-1"}
    produce(bootstrap, topic, [b"first", b"again"], headers=known)
    produce(bootstrap, topic, [b"plain"])
    with taking(settings, [queue("once")]) as node:
        node.wait_for("once", 2)
        wait_until(lambda: node.sources.status()["duplicates"] == 1, node.sources.status)
    produce(bootstrap, topic, [b"once more"], headers=known)
    produce(bootstrap, topic, [b"last"])
    with taking(settings) as node:
        node.wait_for("once", 3)
        wait_until(lambda: node.sources.status()["duplicates"] == 1, node.sources.status)
        assert bodies(node.store, "once") == [b"first", b"plain", b"last"]
    assert committed(settings)[topic, 0] == 5


def test_a_record_with_a_header_whose_name_is_no_utf_8_is_refused_and_others_are_taken_in(
    bootstrap: str, journal: Settings
) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 1000), headers={"jms.string.region": b"eu"})
    produce_with_header_name(bootstrap, topic, b"\xff\xfe")
    produce(bootstrap, topic, [b"last"])
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "unread", "on_error": "skip"})
    with taking(settings, [queue("unread")]) as node:
        node.wait_for("unread", 1001)
        wait_until(lambda: node.source("in")["refused"] == {"bad-header": 1}, node.sources.status)
        assert bodies(node.store, "unread") == [*numbers(0, 1000), b"last"]
    assert committed(settings)[topic, 0] == 1002


def test_what_a_producer_aborted_is_not_taken_in(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for value, commits in ((b"aborted", False), (b"kept", True), (b"aborted too", False), (b"last", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        if commits:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "committed"})
    with taking(settings, [queue("committed")]) as node:
        node.wait_for("committed", 2)
        assert bodies(node.store, "committed") == [b"kept", b"last"]


def test_what_ends_a_transaction_is_no_record_that_a_source_is_behind(bootstrap: str) -> None:
    topic = create_topic(bootstrap, new_name())
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"record")
    producer.commit_transaction(DEADLINE_S)
    consumer, partition = SourceConsumer(ClientSettings(bootstrap), new_name()), (topic, 0)
    consumer.assign({partition: 0})
    records = consumer.poll(DEADLINE_S, 10)
    end = consumer.latest(partition, DEADLINE_S)
    while consumer.reached(partition) < end:
        records += consumer.poll(DEADLINE_S, 10)
    position = records[-1].offset + 1
    assert position < end
    assert consumer.lag({partition: position}) == {partition: 0}
    assert consumer.lag({partition: position - 1}) == {partition: end - position + 1}
    consumer.close()


def test_a_pattern_finds_new_topics_and_never_the_journals_own(bootstrap: str, journal: Settings) -> None:
    prefix = new_name()
    produce(bootstrap, create_topic(bootstrap, f"{prefix}-a"), numbers(0, 3))
    pattern = f"{prefix}-.*|{journal.journal}.*|__consumer_offsets"
    settings = with_sources(journal, {"name": "in", "pattern": pattern, "address": "pattern"})
    with taking(settings, [queue("pattern")]) as node:
        node.wait_for("pattern", 3)
        produce(bootstrap, create_topic(bootstrap, f"{prefix}-b", 2), numbers(3, 4), partitions=2)
        node.wait_for("pattern", 7)
        assert set(bodies(node.store, "pattern")) == set(numbers(0, 7))
        assert node.source("in")["partitions"] == 3
    consumed = {topic for topic, _ in committed(settings)}
    assert f"{prefix}-b" in consumed
    assert not [topic for topic in consumed if topic.startswith((journal.journal, "__"))]


def test_a_source_that_starts_at_the_end_begins_there_once(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 5))
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "latest", "start": "latest"})
    with taking(settings, [queue("latest")]) as node:
        wait_until(lambda: committed(settings).get((topic, 0)) == 5, node.sources.status)
    produce(bootstrap, topic, numbers(5, 2))  # while nobody consumes
    with taking(settings) as node:
        node.wait_for("latest", 2)
        assert bodies(node.store, "latest") == numbers(5, 2)


def test_a_partition_that_is_added_later_is_taken_from_its_beginning(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 5))
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "added", "start": "latest"})
    with taking(settings, [queue("added")]) as node:
        wait_until(lambda: committed(settings).get((topic, 0)) == 5, node.sources.status)
    add_partition(bootstrap, topic, 2)
    produce(bootstrap, topic, numbers(5, 4), partitions=2)
    with taking(settings) as node:
        node.wait_for("added", 4)
        assert set(bodies(node.store, "added")) == set(numbers(5, 4))


def add_partition(bootstrap: str, topic: str, count: int) -> None:
    """Have a topic have so many."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_S)


def fill(store: MessageStore) -> None:
    """Send until the journal takes nothing more."""
    while True:
        try:
            store.send(Message("busy"), ["busy"])
        except FullError:
            return


def test_a_full_journal_pauses_the_consumer_and_nothing_is_lost(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    small = Limits(queue_operations_max=60, transaction_buffer_operations_max=10)
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "full"})
    settings = settings.model_copy(update={"limits": small, "room_timeout_ms": 0})
    # topics are not listed meanwhile: the offsets that are committed again behind that would wait for the writer, too
    queues = [queue("full"), queue("busy")]
    with taking(settings, queues, batch_records=25, list_every_s=2 * DEADLINE_S) as node:
        wait_until(lambda: committed(settings).get((topic, 0)) == 0, node.sources.status)
        with blocked_writer(node.journal):
            fill(node.store)
            produce(bootstrap, topic, numbers(0, 300))
            wait_until(lambda: node.sources.status()["state"] == "paused", node.sources.status)
            assert (ready(node.store, "full"), node.store.queue("full").arriving) == (0, 0)
        node.wait_for("full", 300)
        assert bodies(node.store, "full") == numbers(0, 300)


# ---- policies ----------------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_converted_stops_its_source_alone(bootstrap: str, journal: Settings) -> None:
    poisoned, healthy = create_topic(bootstrap, new_name()), create_topic(bootstrap, new_name())
    produce(bootstrap, poisoned, [b"fine", b"\xff\xfe", b"behind"])
    settings = with_sources(
        journal,
        {"name": "poisoned", "topics": [poisoned], "address": "stops", "value": "text"},
        {"name": "healthy", "topics": [healthy], "address": "goes-on", "value": "text"},
    )
    with taking(settings, [queue("stops"), queue("goes-on")]) as node:
        assert f"{poisoned}[0]@1" in node.wait_stopped("poisoned")
        produce(bootstrap, healthy, numbers(0, 3))
        node.wait_for("goes-on", 3)
        assert bodies(node.store, "stops") == [b"fine"]
        assert node.source("healthy")["error"] == ""
    assert committed(settings)[poisoned, 0] == 1


def test_a_record_that_cannot_be_converted_is_skipped_and_counted(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, [b"fine", b"\xff", b"behind", b"\xfe"])
    settings = with_sources(
        journal, {"name": "in", "topics": [topic], "address": "skips", "value": "text", "on_error": "skip"}
    )
    with taking(settings, [queue("skips")]) as node:
        wait_until(lambda: node.source("in")["records"] == 4, node.sources.status)
        assert node.source("in")["refused"] == {"not-text": 2}
        assert bodies(node.store, "skips") == [b"fine", b"behind"]
    assert committed(settings)[topic, 0] == 4


def test_a_record_that_cannot_be_converted_goes_to_the_dead_letter_topic_with_the_reason(
    bootstrap: str, journal: Settings
) -> None:
    topic, letters = create_topic(bootstrap, new_name()), create_topic(bootstrap, new_name())
    produce(bootstrap, topic, [b"fine", b"\xff", b"behind"])
    source = {"name": "in", "topics": [topic], "value": "text", "on_error": "dead-letter", "address": "{topic}"}
    settings = with_sources(journal, source, dead_letter_topic=letters)
    with taking(settings, [queue(topic)]) as node:
        node.wait_for(topic, 2)
        wait_until(lambda: node.source("in")["dead_letters"] == 1, node.sources.status)
        (letter,) = read_topic(bootstrap, letters, 1)
        assert (letter.key(), letter.value()) == (b"1", b"\xff")
        assert ("kafka-journal.error.reason", b"not-text") in (letter.headers() or [])
        assert bodies(node.store, topic) == [b"fine", b"behind"]


def test_a_dead_letter_fits_its_topic_and_the_journals_writer_and_holds_up_nobody(
    bootstrap: str, journal: Settings
) -> None:
    large, many = (create_topic(bootstrap, new_name(), config={"max.message.bytes": "3000000"}) for _ in range(2))
    letters = create_topic(bootstrap, new_name(), config={"max.message.bytes": "2000000"})
    small = create_topic(bootstrap, new_name(), config={"max.message.bytes": "20000"})
    produce(bootstrap, large, [b"\xff" * 950_000, b"fine"])
    produce(bootstrap, many, [b"\xff" + os.urandom(1000) for _ in range(100)])
    source = {"value": "text", "on_error": "dead-letter", "address": "fits"}
    settings = with_sources(
        journal,
        {"name": "large", "topics": [large], "dead_letter_topic": letters, **source},
        {"name": "many", "topics": [many], "dead_letter_topic": small, **source},
    )
    with taking(settings, [queue("fits")]) as node:
        node.wait_for("fits", 1)
        wait_until(lambda: node.source("many")["dead_letters"] == 100, node.sources.status)
        (letter,) = read_topic(bootstrap, letters, 1)
        assert letter.value() is None
        assert ("kafka-journal.error.without", b"value") in (letter.headers() or [])
        assert len(read_topic(bootstrap, small, 100)) == 100
    assert (committed(settings)[large, 0], committed(settings)[many, 0]) == (2, 100)


def test_an_address_that_is_not_there_is_refused_by_policy(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, [b"nowhere"])
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "no.such"})
    with taking(settings) as node:
        assert "there is no address no.such (bad-address)" in node.wait_stopped("in")
    with taking(settings, [queue("no.such")]) as node:
        node.wait_for("no.such", 1)


def test_a_stopped_source_goes_on_when_an_operator_says_so_with_or_without_what_stopped_it(
    bootstrap: str, journal: Settings
) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, [b"fine", b"\xff", b"behind", b"\xfe", b"last"])
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "resumed", "value": "text"})
    with taking(settings, [queue("resumed")]) as node:
        with pytest.raises(InvalidOperationError, match="not stopped"):
            node.sources.resume("other", skip=True)
        assert f"{topic}[0]@1" in node.wait_stopped("in")
        assert node.sources.resume("in", skip=True) == f"{topic}[0]@1"
        wait_until(lambda: f"{topic}[0]@3" in str(node.source("in")["error"]), node.sources.status)
        assert bodies(node.store, "resumed") == [b"fine", b"behind"]
        assert node.sources.resume("in", skip=False) == ""
        wait_until(lambda: reported(settings, "in").error != "", node.sources.status)
        skipped: list[str] = []

        def resume() -> bool:
            # its status says that it is stopped until it has begun, and then again
            with suppress(InvalidOperationError):
                skipped.append(node.sources.resume("in", skip=True))
            return bool(skipped)

        wait_until(resume, node.sources.status)
        assert skipped == [f"{topic}[0]@3"]
        node.wait_for("resumed", 3)
        wait_until(lambda: reported(settings, "in").messages == 3, node.sources.status)
        assert 0 < reported(settings, "in").latency_ms <= reported(settings, "in").latency_ms_max
        assert reported(settings, "in").state == "running"
    assert committed(settings)[topic, 0] == 5


def reported(settings: Settings, source: str) -> SourceReport:
    """What the active node last reported of a source, to everybody."""
    report = read_control(kafka_of(settings), settings.journal, time.monotonic, DEADLINE_S).sources
    found = [each for each in report.sources if each.source == source] if report is not None else []
    return found[0] if found else SourceReport()


# ---- topics ------------------------------------------------------------------------------------------------------


def test_a_topic_that_vanishes_stops_its_source_alone(bootstrap: str, journal: Settings) -> None:
    vanishing, staying = create_topic(bootstrap, new_name()), create_topic(bootstrap, new_name())
    produce(bootstrap, vanishing, numbers(0, 2))
    settings = with_sources(
        journal,
        {"name": "vanishing", "topics": [vanishing], "address": "vanishing"},
        {"name": "staying", "topics": [staying], "address": "staying"},
    )
    with taking(settings, [queue("vanishing"), queue("staying")]) as node:
        node.wait_for("vanishing", 2)
        delete_topic(bootstrap, vanishing)
        assert vanishing in node.wait_stopped("vanishing")
        produce(bootstrap, staying, numbers(0, 2))
        node.wait_for("staying", 2)


def test_a_topic_that_was_deleted_and_made_anew_stops_its_source_until_it_is_to_go_on(
    bootstrap: str, journal: Settings
) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 3))
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "anew"})
    with taking(settings, [queue("anew")]) as node:
        node.wait_for("anew", 3)
        delete_topic(bootstrap, topic)
        node.wait_stopped("in")
        create_anew(bootstrap, topic)
        produce(bootstrap, topic, numbers(10, 2))
        wait_until(lambda: "made anew" in str(node.source("in")["error"]), node.sources.status)
        assert bodies(node.store, "anew") == numbers(0, 3)
        node.sources.resume("in", skip=False)
        node.wait_for("anew", 5)
        assert bodies(node.store, "anew") == [*numbers(0, 3), *numbers(10, 2)]
    delete_topic(bootstrap, topic)
    create_anew(bootstrap, topic)
    produce(bootstrap, topic, numbers(20, 2))
    wait_until(lambda: (topic, 0) not in committed(settings))
    latest = with_sources(journal, {"name": "in", "topics": [topic], "address": "anew", "start": "latest"})
    with taking(latest, []) as node:  # no node was active meanwhile
        node.wait_for("anew", 7)
        assert bodies(node.store, "anew") == [*numbers(0, 3), *numbers(10, 2), *numbers(20, 2)]


def test_nothing_is_taken_of_a_topic_that_was_made_anew_between_two_looks(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 3))
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "again"})
    group, place = sources_group(settings.journal), (topic, 0)
    with taking(settings, [queue("again")], list_every_s=1000) as node:
        node.wait_for("again", 3)
        wait_until(lambda: committed(settings).get(place) == 3)
        old = kafka_of(settings).cluster().stable_positions(group, [place], DEADLINE_S)[place]
        delete_topic(bootstrap, topic)
        create_anew(bootstrap, topic)
        produce(bootstrap, topic, numbers(10, 5))
        assert "made anew" in node.wait_stopped("in")
        assert bodies(node.store, "again") == numbers(0, 3)
        wait_until(lambda: place not in committed(settings))  # Kafka deletes them with the topic, in its own time
        set_offset(bootstrap, group, TopicPartition(topic, 0, 3, metadata_of(old.topic_id)))
        with pytest.raises(InvalidOperationError, match=rf"{topic}\[0\]@3\), .* nothing was taken"):
            node.sources.resume("in", skip=False)
        set_offset(bootstrap, group, TopicPartition(topic, 0, 1, "set by hand"))
        node.sources.resume("in", skip=False)
        node.wait_for("again", 7)
        assert bodies(node.store, "again") == [*numbers(0, 3), *numbers(11, 4)]


def set_offset(bootstrap: str, group: str, place: TopicPartition) -> None:
    """Tools of Kafka commit an offset for a group in this way, beside its consumers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [place])])
    asked[group].result(DEADLINE_S)


def create_anew(bootstrap: str, topic: str) -> None:
    """Create a topic that is being deleted, once that is over."""

    def created() -> bool:
        try:
            create_topic(bootstrap, topic)
        except KafkaException:
            return False
        return True

    wait_until(created)


def test_an_offset_outside_the_log_stops_its_source_and_is_never_reset(bootstrap: str, journal: Settings) -> None:
    topic = create_topic(bootstrap, new_name())
    produce(bootstrap, topic, numbers(0, 4))
    settings = with_sources(journal, {"name": "in", "topics": [topic], "address": "trimmed"})
    with taking(settings, [queue("trimmed")]) as node:
        node.wait_for("trimmed", 4)
    produce(bootstrap, topic, numbers(4, 4))
    trim_topic(bootstrap, topic, 6)
    with taking(settings) as node:
        assert "outside the log" in node.wait_stopped("in")
        assert ready(node.store, "trimmed") == 4
    assert committed(settings)[topic, 0] == 4
