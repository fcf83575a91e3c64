"""A journal on a real Kafka with one of everything that its readers tell apart, and what was written into it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]  # it re-exports them without saying so

from journal.config import Settings
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.limits import Limits
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from journal.topics.control_reading import read_control
from journal.topics.names import wal_topic
from journal.wal.reading import WalReader
from journal.wire.frames import Frame
from journal.xa.xid import encode_xid, make_xid
from loaders.spark.read.source import JournalSource
from tests.support.children.store import start
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.spark.frames import TopicRecord

WAIT_S = 60.0
SHARDS = 3
SENT_MS = 1_700_000_000_123
EXPIRES_MS = 4_000_000_000_000
XID = make_xid(7, b"transfer \xff", b"branch 1")


@dataclass
class History:
    """What was written, and what a load found afterwards."""

    settings: Settings
    loaded: Collected = field(default_factory=Collected)
    waiting: list[int] = field(default_factory=list)
    """Messages in queue orders/eu: `message_of` in order."""
    held: int = 0
    """The one of them that a holder gave back once and took again."""
    acknowledged: list[int] = field(default_factory=list)
    prepared: tuple[int, int, int] = (0, 0, 0)
    """A transaction in doubt, the message that it adds, and the one that it acknowledges."""

    @property
    def source(self) -> JournalSource:
        return JournalSource.from_settings(self.settings)


def message_of(number: int) -> Message:
    """The message of that number; everything of it follows from it."""
    return Message(
        "orders",
        b"body %d" % number,
        headers={"number": number},
        properties={"tenant": "eu", "bulk": number % 2 == 0, "weight": 0.5, "raw": b"\x00\xff"},
        priority=number % 10,
        timestamp=SENT_MS + number,
        expires=EXPIRES_MS if number % 2 else 0,
        duplicate_id=b"%d" % number,
    )


def write_history(bootstrap: str, directory: Path) -> History:
    """One address with two queues: messages that wait, that are held, that went; a transaction in doubt. And a plain
    transaction over all shards, a spilled record, and frames of a transaction of Kafka's that was aborted."""
    settings = made_journal(bootstrap, directory, shards=SHARDS, limits=Limits(updates_row_bytes_max=100))
    history = History(settings)
    with running_worker(settings):
        with BlockingJournal(settings, copy_name="writer") as journal:
            with start(journal) as store:
                _fill(store, history)
            _fill_plainly(journal)
        with BlockingJournal(settings, copy_name="reader") as journal:
            journal.activate(history.loaded)
            for number in (1, 2, 50):  # what has rows by now gets tombstones
                journal.delete(plain_id(number)).wait(WAIT_S)
                history.loaded.records.pop(plain_id(number))
                history.loaded.updates.pop(plain_id(number), None)
    abort_a_frame(settings)
    return history


def _fill(store: MessageStore, history: History) -> None:
    store.create_address("orders", duplicate_window=100)
    for queue in ("orders/eu", "orders/us"):
        store.create_queue(QueueConfig(queue, "orders", journaled_acquisition=queue == "orders/eu"))
    sent = [store.send(message_of(number), ["orders/eu"]) for number in range(10)]
    both = [store.send(message_of(number), ["orders/eu", "orders/us"]) for number in range(10, 14)]
    history.waiting = [pending.wait() for pending in sent + both]
    taken = store.take("orders/us", "consumer")
    while taken is not None:
        store.acknowledge(taken.message, "orders/us", "consumer").wait()
        history.acknowledged.append(taken.message)
        taken = store.take("orders/us", "consumer")
    first = history.waiting[9]  # the one of the highest priority
    store.acquire(first, "orders/eu", "slow").wait()
    store.release(first, "orders/eu", "slow").wait()
    store.acquire(first, "orders/eu", "slow").wait()
    history.held = first
    tx = store.begin()
    added = store.send(message_of(99), ["orders/us"], tx).id
    store.acknowledge(history.waiting[0], "orders/eu", tx=tx)
    store.prepare(tx, encode_xid(XID, SENT_MS)).wait()
    history.prepared = (tx, added, history.waiting[0])


def _fill_plainly(journal: BlockingJournal) -> None:
    """Records of kinds that are no store's: some with updates that spill, some that go, and a transaction over all
    shards."""
    for number in range(1, 61):
        journal.add(plain_id(number), PLAIN, b"%d" % number)
    for number in range(1, 31):
        journal.update(plain_id(number), PLAIN + 1, b"appended " * number)
        journal.update(plain_id(number), PLAIN + 1, b"first", replaceable=True, subject=3)
        journal.update(plain_id(number), PLAIN + 1, b"last" * number, replaceable=True, subject=3)
        journal.update(plain_id(number), PLAIN + 1, b"")
    for number in range(21, 41):
        journal.delete(plain_id(number))
    tx = journal.begin()
    for number in range(61, 70):
        journal.add(plain_id(number), PLAIN, b"tx", tx=tx)
    journal.prepare(tx, b"no xid").wait(WAIT_S)
    journal.commit(tx).wait(WAIT_S)


PLAIN = 200


def plain_id(number: int) -> int:
    return number << 10 | number % 5


# ---- what a broker or an operator does to topics -----------------------------------------------------------


def abort_a_frame(settings: Settings) -> None:
    """Bytes in every shard of the WAL that no reader of committed records may see."""
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": f"{settings.journal}.another"}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for shard in range(settings.shards):
        producer.produce(wal_topic(settings.journal), b"aborted", partition=shard)
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)


def write_values(settings: Settings, topic: str, values: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
    """Records of (partition, key, value), as nobody should write them."""
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for partition, key, value in values:
        producer.produce(topic, value, key, partition)
    assert producer.flush(WAIT_S) == 0


def trim(settings: Settings, offsets: dict[int, int]) -> None:
    """Delete the WAL's records before these offsets."""
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    topic = wal_topic(settings.journal)
    asked = admin.delete_records([TopicPartition(topic, shard, offset) for shard, offset in offsets.items()])
    for done in asked.values():
        done.result(WAIT_S)


def uuid_of(settings: Settings) -> bytes:
    control = read_control(kafka_of(settings), settings.journal, time.monotonic, WAIT_S)
    return control.require_identity(settings.journal).journal


def wal_of(settings: Settings) -> tuple[list[TopicRecord], list[tuple[int, int, Frame]]]:
    """The whole WAL by the journal's own reader: records, and (shard, offset, frame)."""
    wal = WalReader(kafka_of(settings), settings.journal, uuid_of(settings), settings.shards, time.monotonic)
    records, frames = [], []
    try:
        for shard in range(settings.shards):
            start_, end = wal.bounds(shard, WAIT_S)
            for record, parsed in wal.frames(shard, start_, end, WAIT_S, strict=True):
                place = (wal_topic(settings.journal), shard, record.offset)
                records.append(TopicRecord(*place, record.timestamp, record.value))
                frames.append((shard, record.offset, parsed))
    finally:
        wal.close()
    return records, frames
