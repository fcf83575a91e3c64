"""A record batch that has gone bad on a broker's disk: its shard stops at its place, and no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.config import Settings
from journal.errors import CorruptionError
from journal.kafka.embedded import EmbeddedKafka
from journal.kafka.ports import Reader
from journal.runtime import kafka_of
from streams.app import BackgroundWorker
from tests.integration.test_faust_glue import DEADLINE_S, RecordingShell, Wal
from tests.support.brokers import JVM_OPTIONS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

MARK = b"this is what goes bad"


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


def read_on(reader: Reader) -> None:
    while True:
        reader.poll(DEADLINE_S)


def test_a_damaged_batch_is_told_with_its_place_and_everything_before_it_and_of_other_shards_is_read(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path / "kafka", attached=True, jvm_options=JVM_OPTIONS) as kafka:
        wal = Wal(kafka.bootstrap_servers, shards=3)
        for number in range(5):
            wal.write(b"%d" % number)
        wal.write(MARK)
        wal.write(b"behind")
        kafka.stop()
        damage(tmp_path / "kafka", f"{wal.topic}-1")
        kafka.start()
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

        reader = kafka_of(Settings(bootstrap_servers=kafka.bootstrap_servers)).reader(wal.topic)
        reader.seek({1: 0})
        with pytest.raises(CorruptionError) as raised:
            read_on(reader)
        reader.close()
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == (wal.topic, 1, mark)
