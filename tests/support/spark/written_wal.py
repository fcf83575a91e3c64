"""A journal whose WAL a test writes itself, and where it is archived."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from journal.config import Settings
from journal.kafka.clients import kafka_of
from journal.kafka.ports import LogRecord, Sent
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.control_reading import read_control
from journal.topics.marks import records_between
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Archive, Epoch, Frame
from loaders.spark.archive.archive import archive
from loaders.spark.archive.result import ArchiveResult
from loaders.spark.read.archived import read_archive
from loaders.spark.read.source import JournalSource
from tests.support.build import add, frame, marker
from tests.support.in_process import made_journal

SHARDS = 2
LIMIT_S = 30.0


@dataclass
class Written:
    """A journal whose WAL a test writes itself, frame by frame."""

    settings: Settings
    path: str
    numbers: list[int]

    @property
    def source(self) -> JournalSource:
        return JournalSource.from_settings(self.settings)

    @property
    def uuid(self) -> bytes:
        rows = read_control(kafka_of(self.settings), self.settings.journal, time.monotonic, LIMIT_S)
        return rows.require_identity(self.settings.journal).journal

    def frames(self, count: int, *, commit: bool = True, epoch: int = 1) -> None:
        """Frames of so many groups into every shard, a transaction each ten."""
        producer = kafka_of(self.settings).transactional_producer(f"{self.settings.journal}-test")
        producer.init(LIMIT_S)
        uuid, topic = self.uuid, wal_topic(self.settings.journal)
        numbers = list(self.numbers)
        for start in range(0, count, 10):
            sent = []
            for _ in range(start, min(count, start + 10)):
                for shard in range(SHARDS):
                    numbers[shard] += 1
                    number = numbers[shard]
                    operation = marker() if number == 1 else add(number * 1024 + shard, os.urandom(20))
                    value: Frame = frame(number, operation, journal=uuid, issued=number, epoch=epoch)
                    sent.append(Sent(topic, shard, None, value.SerializeToString()))
            producer.send(sent, LIMIT_S)
            if commit:
                producer.commit_transaction(LIMIT_S)
            else:
                producer.abort_transaction(LIMIT_S)
        producer.close()
        if commit:
            self.numbers = numbers

    def foreign(self, value: bytes | None, key: bytes | None = None) -> None:
        producer = kafka_of(self.settings).plain_producer()
        producer.send([Sent(wal_topic(self.settings.journal), 0, key, value)], LIMIT_S)
        producer.close()

    def wal(self) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """What a plain consumer reads: shard, offset, key, value."""
        reader = kafka_of(self.settings).reader(wal_topic(self.settings.journal))
        found: list[LogRecord] = []
        for shard in range(SHARDS):
            start, end = reader.start_and_end(shard, LIMIT_S)
            found += records_between(reader, shard, start, end, clock=time.monotonic, stall_s=LIMIT_S, name="the WAL")
        reader.close()
        return [(record.partition, record.offset, record.key, record.value) for record in found]

    def archived(self, spark: SparkSession) -> list[tuple[int, int, bytes | None, bytes | None]]:
        rows = read_archive(spark, self.path, self.settings.journal).select("shard", "offset", "key", "value").collect()
        return sorted((row[0], row[1], bytes_of(row[2]), bytes_of(row[3])) for row in rows)

    def run(self, spark: SparkSession, **options: Any) -> ArchiveResult:
        return archive(spark, self.source, self.path, **{"once": True, **options})

    def marks(self) -> dict[int, int]:
        return {shard: row.offset for shard, row in self.mark_rows().items()}

    def mark_rows(self) -> dict[int, Archive]:
        return read_control(kafka_of(self.settings), self.settings.journal, time.monotonic, LIMIT_S).archives

    def trim(self, *offsets: int) -> None:
        cluster = kafka_of(self.settings).cluster()
        cluster.delete_records(wal_topic(self.settings.journal), dict(enumerate(offsets)), LIMIT_S)
        cluster.close()


def bytes_of(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def make_written(bootstrap: str, tmp_path: Path) -> Written:
    """With 30 groups in its WAL."""
    settings = made_journal(bootstrap, tmp_path, shards=SHARDS)
    made = Written(settings, str(tmp_path / "archive"), [0] * SHARDS)
    producer = kafka_of(settings).plain_producer()
    producer.send([control_row(settings.journal, EPOCH_KEY, Epoch(journal=made.uuid, epoch=1))], LIMIT_S)
    producer.close()
    made.frames(30)
    return made
