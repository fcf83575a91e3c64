"""`python -m bench sources`: records that sources take into the message store, against a bare loop.

The loop does only what exactly once needs: it consumes a batch, sends each record on, sends the offsets and commits.
Both have the same records (200 bytes, a key, two headers), batch size and partitions, and begin with connected clients.
The worker is needed for the activation and is stopped for the rounds, because the loop runs without one too.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench import limits
from bench.rounds import Comparison, Outcome, alternate
from bench.scene import RUN_TIMEOUT_S, TIMEOUT_S, Memory, Scene, delete_topics, worker
from bench.workload import bodies, produce_patiently
from journal.config import Settings
from journal.errors import DeadlineError
from journal.journal import BlockingJournal
from journal.routing.config import RoutingConfig
from journal.sources.service import BATCH_RECORDS, SourcesService
from journal.store.model import QueueConfig
from journal.store.store import MessageStore
from loaders.queues import QueueLoader

RECORDS = 200_000
PARTITIONS = 8
TARGET = 0.6

_HEADERS: list[tuple[str, str | bytes | None]] = [("jms.string.region", b"eu"), ("jms.string.kind", b"order")]
_LOOK_S = 0.005


def run(scene: Scene) -> Outcome:
    outcome, memory = Outcome(), Memory()
    records = scene.operations(RECORDS)
    topic = limits.new_topic(scene.bootstrap, PARTITIONS)
    _fill(scene.bootstrap, topic, records)
    loop = BareLoop(scene.bootstrap, topic, records)
    with (
        memory.watch(node_and_bench=os.getpid(), broker=scene.broker_pid),
        scene.journal(PARTITIONS) as settings,
        _active(settings) as store,
    ):
        ours, limit = alternate(
            scene.rounds(),
            lambda: _take_in(settings, store, topic, records),
            loop.run,
            what="records taken in",
        )
    outcome.comparisons.append(Comparison("sources", "records_per_s", ours, limit, TARGET))
    outcome.figures |= memory.figures()
    delete_topics(scene.bootstrap, [topic])
    return outcome


def _fill(bootstrap: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    data = bodies()
    for number in range(records):

        def produce(number: int = number) -> None:
            value, key = data[number % len(data)], b"%d" % number
            producer.produce(topic, value, key, number % PARTITIONS, headers=_HEADERS)

        produce_patiently(producer, produce)
    if producer.flush(TIMEOUT_S):
        raise DeadlineError(f"{topic} was not filled")


@contextmanager
def _active(settings: Settings) -> Iterator[MessageStore]:
    """Makes an active store with one queue for the records."""
    with BlockingJournal(settings) as journal:
        loader = QueueLoader(references_in_memory_max=10**8, queue_references_in_memory_max=10**8)
        with worker(settings):
            journal.activate(loader)
        with MessageStore(journal) as store:
            store.start(loader.loaded)
            store.create_address("orders")
            store.create_queue(QueueConfig("orders", "orders")).wait(TIMEOUT_S)
            yield store


def _take_in(settings: Settings, store: MessageStore, topic: str, records: int) -> float:
    """Returns records a second from the sources' start. Each call has a source group of its own."""
    source = {"name": "in", "topics": [topic], "address": "orders"}
    routing = RoutingConfig.model_validate({"sources": [source]})
    group = f"bench-{uuid.uuid4().hex}"
    sources = SourcesService(settings.model_copy(update={"routing": routing}), store, group=group)
    began = time.perf_counter()
    sources.start()
    try:
        while sources.status()["sources"][0]["records"] < records:
            if time.perf_counter() - began > RUN_TIMEOUT_S:
                raise DeadlineError(f"not taken in: {sources.status()}")
            time.sleep(_LOOK_S)
        return records / (time.perf_counter() - began)
    finally:
        sources.close()


class BareLoop:
    """A loop that consumes, transforms and produces a batch, and commits its offsets, in one transaction."""

    def __init__(self, bootstrap: str, topic: str, records: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._records = records
        self._target = limits.new_topic(bootstrap, PARTITIONS)
        self._producer = limits.new_transactional(bootstrap)

    def run(self) -> float:
        """Returns records a second."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"bench-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        group = consumer.consumer_group_metadata()
        began = time.perf_counter()
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
        done = 0
        while done < self._records:
            messages = consumer.consume(BATCH_RECORDS, 0.05)
            if messages:
                self._send_on(messages, group)
                done += len(messages)
            elif time.perf_counter() - began > RUN_TIMEOUT_S:
                raise DeadlineError(f"{done} of {self._records} records of {self._topic}")
        took = time.perf_counter() - began
        consumer.close()
        return self._records / took

    def _send_on(self, messages: list[Message], group: object) -> None:
        producer, target = self._producer, self._target
        offsets: dict[int, int] = {}
        producer.begin_transaction()
        for message in messages:
            if (error := message.error()) is not None:
                raise DeadlineError(f"{self._topic}: {error}")
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            offsets[partition] = offset + 1
            producer.produce(target, message.value(), message.key(), partition, headers=message.headers())
        ends = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        producer.send_offsets_to_transaction(ends, group, TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
