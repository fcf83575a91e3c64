"""No client of ours makes a topic, also where brokers make those that clients ask for: one that is gone stays so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aiokafka  # type: ignore[import-untyped]
import pytest

from journal.errors import JournalError, TopicError
from journal.kafka.clients import KafkaClients
from journal.kafka.ports import Sent
from journal.sources.consumer import SourceConsumer
from journal.topics.names import wal_topic
from streams.reading.client_properties import aiokafka_properties
from tests.support.in_process import made_journal, running_worker
from tests.support.sources import DEADLINE_S, delete_topic, new_name, topics
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LIMIT_S = 1.0
"""Long enough for a question, which is what makes a topic."""


def _plain(clients: KafkaClients, topic: str) -> None:
    producer = clients.plain_producer()
    producer.connect([topic], LIMIT_S)
    producer.send([Sent(topic, 0, b"k", b"v")], LIMIT_S)


def _transactional(clients: KafkaClients, topic: str) -> None:
    producer = clients.transactional_producer(new_name())
    producer.init(DEADLINE_S)
    producer.send([Sent(topic, 0, b"k", b"v")], LIMIT_S)


def _reader(clients: KafkaClients, topic: str) -> None:
    reader = clients.reader(topic)
    reader.seek({0: 0})
    reader.poll(LIMIT_S)


def _source(clients: KafkaClients, topic: str) -> None:
    consumer = SourceConsumer(clients.settings, new_name())
    consumer.assign({(topic, 0): 0})
    consumer.poll(LIMIT_S, 1)
    consumer.earliest((topic, 0), LIMIT_S)


def _cluster(clients: KafkaClients, topic: str) -> None:
    cluster = clients.cluster()
    assert cluster.describe([topic], LIMIT_S) == cluster.topic_ids([topic], LIMIT_S) == {}
    cluster.delete_records(topic, {0: 1}, LIMIT_S)


def _member(clients: KafkaClients, topic: str) -> None:
    member = clients.membership(new_name(), topic, "me", session_timeout_ms=6000, heartbeat_ms=300)
    wait_until(lambda: bool(member.problem))
    member.leave()


@pytest.mark.parametrize("ask", [_plain, _transactional, _reader, _source, _cluster, _member])
def test_no_client_makes_the_topic_that_it_asks_for(guarded: str, ask: Callable[[KafkaClients, str], None]) -> None:
    topic = new_name()
    with suppress(JournalError):
        ask(KafkaClients(guarded, transaction_timeout_ms=5000), topic)
    assert topic not in topics(guarded)


def test_no_client_of_fausts_makes_the_topic_that_it_asks_for(guarded: str) -> None:
    topic = new_name()

    async def ask() -> None:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=guarded, **aiokafka_properties({}))
        with suppress(TimeoutError):
            await asyncio.wait_for(consumer.start(), LIMIT_S)
        await consumer.stop()

    asyncio.run(ask())
    assert topic not in topics(guarded)


def test_a_journals_topic_that_was_deleted_stays_deleted(guarded: str, tmp_path: Path) -> None:
    settings = made_journal(guarded, tmp_path, shards=1)
    wal = wal_topic(settings.journal)
    delete_topic(guarded, wal)
    wait_until(lambda: wal not in topics(guarded))
    with pytest.raises(TopicError, match="is missing"), running_worker(settings):
        pass
    assert wal not in topics(guarded)
