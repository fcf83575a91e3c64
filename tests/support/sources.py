"""Topics that a journal takes records from, and a node in this process that does."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it re-exports them

from journal.config import Settings
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.sources.service import SourcesService
from journal.store.model import QueueConfig
from journal.store.store import MessageStore
from journal.topics.names import sources_group
from tests.support.children.store import start
from tests.support.waiting import wait_until

DEADLINE_S = 60.0


def new_name() -> str:
    """A topic's name that no other test has."""
    return f"source-{uuid.uuid4().hex}"


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, replication: int = 1
) -> str:
    """Create it, and wait for that."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, replication, config=dict(config or {}))
    admin.create_topics([new])[topic].result(DEADLINE_S)
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)


def topics(bootstrap: str) -> set[str]:
    """The topics that there are."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).topics)


def trim_topic(bootstrap: str, topic: str, before: int) -> None:
    """Delete the records of its first partition before an offset."""
    below = TopicPartition(topic, 0, before)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([below])[below].result(DEADLINE_S)


def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partitions: int = 1,
    headers: Mapping[str, bytes] | None = None,
) -> None:
    """Values with their number as the key, to the partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"%d" % number, number % partitions, headers=list((headers or {}).items()))
    assert producer.flush(DEADLINE_S) == 0


def read_topic(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Committed records of the first partition, once there are so many."""
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: list[Message] = []
    until = time.monotonic() + DEADLINE_S
    while len(records) < count:
        assert time.monotonic() < until, f"{len(records)} of {count} records of {topic}"
        records += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return records


def committed(settings: Settings) -> dict[tuple[str, int], int]:
    """The offsets that the sources have committed."""
    cluster = kafka_of(settings).cluster()
    found = cluster.stable_offsets(sources_group(settings.journal), [], DEADLINE_S)
    cluster.close()
    return found


def ready(store: MessageStore, queue: str) -> int:
    return store.queue(queue).ready


class Taking:
    """A node in this process with a store and the sources."""

    def __init__(self, journal: BlockingJournal, store: MessageStore, sources: SourcesService) -> None:
        self.journal = journal
        self.store = store
        self.sources = sources

    def source(self, name: str) -> dict[str, object]:
        """A source's status."""
        (found,) = [each for each in self.sources.status()["sources"] if each["source"] == name]
        return dict(found)

    def wait_stopped(self, name: str) -> str:
        """Wait until a source is stopped; why."""
        wait_until(lambda: self.source(name)["error"] != "", self.sources.status)
        return str(self.source(name)["error"])

    def wait_for(self, queue: str, count: int) -> None:
        wait_until(lambda: ready(self.store, queue) >= count, lambda: (ready(self.store, queue), self.sources.status()))


@contextmanager
def taking(
    settings: Settings,
    queues: Sequence[QueueConfig] = (),
    *,
    copy_name: str = "node",
    batch_records: int = 100,
    list_every_s: float = 0.2,
) -> Iterator[Taking]:
    """The active node of a journal, with its sources; queues that are not there yet are made first."""
    with BlockingJournal(settings, copy_name=copy_name) as journal, start(journal) as store:
        make_queues(store, queues)
        sources = SourcesService(settings, store, batch_records=batch_records, list_every_s=list_every_s)
        sources.start()
        try:
            yield Taking(journal, store, sources)
        finally:
            sources.close()


def make_queues(store: MessageStore, queues: Sequence[QueueConfig]) -> None:
    addresses = {entry.name for entry in store.addresses()}
    names = {info.config.name for info in store.queues()}
    for queue in queues:
        if queue.address not in addresses:
            store.create_address(queue.address)
            addresses.add(queue.address)
        if queue.name not in names:
            store.create_queue(queue)
    store.flush().wait(DEADLINE_S)
