"""What a broker's disk can do to a log: a record batch goes bad, and stops its shard at its place and no other one; a
tail that was acknowledged is lost, and whoever has read it is told, although the log has grown beyond that again."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path

import pytest

from journal.config import Settings
from journal.embedded.cluster import EmbeddedKafka
from journal.errors import CorruptionError, GapError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka, LogRecord, Reader, Sent
from tests.integration.test_faust_glue import DEADLINE_S, RecordingShell, Wal
from tests.support.background_worker import BackgroundWorker
from tests.support.brokers import JVM_OPTIONS
from tests.support.stream_apps import new_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

MARK = b"this is what goes bad"
BATCH_HEAD = struct.Struct(">qi")
"""A batch's first offset, and how many bytes follow."""


class ToldShell(RecordingShell):
    """Keeps which shards cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable_at: dict[int, CorruptionError] = {}

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self.unreadable_at[shard] = error
        self._note("unreadable", (shard,))


def damage(directory: Path, partition: str) -> None:
    """Turn one bit of `MARK` in a partition's log."""
    (log,) = [path for path in directory.rglob("*.log") if path.parent.name == partition]
    content = bytearray(log.read_bytes())
    content[content.index(MARK)] ^= 1
    log.write_bytes(content)


def cut(directory: Path, partition: str, value: bytes) -> None:
    """Lose a partition's log from the batch on that has this value."""
    (log,) = [path for path in directory.rglob("*.log") if path.parent.name == partition]
    content = log.read_bytes()
    place, start = content.index(value), 0
    while (end := start + BATCH_HEAD.size + BATCH_HEAD.unpack_from(content, start)[1]) <= place:
        start = end
    log.write_bytes(content[:start])


def send(kafka: Kafka, topic: str, *values: bytes) -> None:
    producer = kafka.plain_producer()
    for value in values:
        producer.send([Sent(topic, 0, None, value)], DEADLINE_S)
    producer.close()


def read(reader: Reader, count: int) -> list[LogRecord]:
    records: list[LogRecord] = []
    while len(records) < count:
        records += reader.poll(DEADLINE_S)
    return records


def read_on(reader: Reader) -> None:
    while True:
        reader.poll(DEADLINE_S)


def test_a_damaged_batch_and_a_lost_tail_are_told_with_their_places_and_everything_else_is_read(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path / "kafka", attached=True, jvm_options=JVM_OPTIONS) as kafka:
        wal = Wal(kafka.bootstrap_servers, shards=3)
        for number in range(5):
            wal.write(b"%d" % number)
        wal.write(MARK)
        wal.write(b"behind")
        clients = kafka_of(Settings(bootstrap_servers=kafka.bootstrap_servers))
        other = new_topic(kafka.bootstrap_servers)
        send(clients, other, b"kept", b"lost")
        following = clients.reader(other)
        following.seek({0: 0})
        _, lost = read(following, 2)
        kafka.stop()
        damage(tmp_path / "kafka", f"{wal.topic}-1")
        cut(tmp_path / "kafka", f"{other}-0", b"lost")
        kafka.start()

        send(clients, other, b"another", b"one more")
        assert lost.leader_epoch is not None
        with closing(clients.reader(other)) as returning:
            returning.seek({0: 2}, {0: lost.leader_epoch})
            for each in (following, returning):
                with pytest.raises(GapError) as gap:
                    read_on(each)
                assert (gap.value.topic, gap.value.partition, gap.value.offset) == (other, 0, 2)
            returning.seek({0: 2})
            assert [record.value for record in read(returning, 1)] == [b"one more"], "nothing else tells"
        following.close()

        shell = ToldShell()
        worker = BackgroundWorker(shell, wal.settings())
        worker.start(DEADLINE_S)
        before = [b"%d" % number for number in range(5)]
        whole = [*before, MARK, b"behind"]
        shell.wait(lambda shell: shell.values() == {0: whole, 1: before, 2: whole} and bool(shell.unreadable_at))
        worker.stop(DEADLINE_S)
        assert shell.unreadable_at.keys() == {1}
        told = shell.unreadable_at[1]
        assert (told.topic, told.partition) == (wal.topic, 1)
        last, mark = 8, 10  # a transaction's end takes an offset too
        assert last < told.offset <= mark

        reader = clients.reader(wal.topic)
        reader.seek({1: 0})
        with pytest.raises(CorruptionError) as raised:
            read_on(reader)
        reader.close()
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == (wal.topic, 1, mark)
