"""Reads a shard to check it: its committed WAL, the rows up to its newest mark, and rows behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from journal.kafka.ports import Kafka, LogRecord, Reader
from journal.process.clocks import Clock
from journal.settings import JournalSettings
from journal.topics.marks import FoundMark, MarkReader, records_between
from journal.topics.names import table_topic, wal_topic

_PROGRESS_RECORDS = 256


class ShardReading:
    """Reads shards of one journal, each from its start. `progress` is told the step, the work done, and the whole
    work."""

    def __init__(
        self,
        kafka: Kafka,
        settings: JournalSettings,
        progress: Callable[[str, int, int], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._clock = clock
        self._wal_topic = wal_topic(settings.journal)
        self._table_topic = table_topic(settings.journal)
        self._min_compaction_lag_ms = settings.min_compaction_lag_ms
        self._timeout_s = settings.request_timeout_ms / 1000
        self._progress = progress
        self._marks = MarkReader(kafka, self._table_topic, clock)

    def newest_mark(self, shard: int) -> FoundMark:
        return self._marks.newest(shard, self._timeout_s)

    def wal_start(self, shard: int) -> int:
        """The WAL's first offset."""
        reader = self._kafka.reader(self._wal_topic)
        try:
            return reader.start_and_end(shard, self._timeout_s)[0]
        finally:
            reader.close()

    def wal(self, shard: int) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        """The committed records of a shard's WAL, from its start to its end as of now: offset, timestamp, key,
        value."""
        reader = self._kafka.reader(self._wal_topic)
        try:
            start, end = reader.start_and_end(shard, self._timeout_s)
            for record in self._records(reader, shard, start, end, f"wal {shard}", self._wal_topic):
                yield record.offset, record.timestamp, record.key, record.value
        finally:
            reader.close()

    def table(self, shard: int, found: list[FoundMark]) -> Iterator[tuple[bytes, bytes | None]]:
        """A shard's rows up to its newest mark. The mark is appended to `found` at the end.

        In a compacted topic, the rows up to a mark that is not the newest may be no complete state. If reading took
        longer than min.compaction.lag, rows may have been compacted away meanwhile, so this reads on to a newer mark.
        """
        reader = self._kafka.reader(self._table_topic)
        try:
            start, _ = reader.start_and_end(shard, self._timeout_s)
            while True:
                began = self._clock()
                found.append(self.newest_mark(shard))
                end = found[-1].place + 1
                for record in self._records(reader, shard, start, end, f"table {shard}", self._table_topic):
                    yield record.key or b"", record.value
                if (self._clock() - began) * 1000 <= self._min_compaction_lag_ms:
                    return
                start = end
        finally:
            reader.close()

    def strays(self, found: FoundMark, shard: int) -> Iterator[LogRecord]:
        """Committed rows behind the newest mark. Workers write no such rows."""
        reader = self._kafka.reader(self._table_topic)
        try:
            start, _ = reader.start_and_end(shard, self._timeout_s)
            start = max(start, found.place + 1)
            yield from self._records(reader, shard, start, found.end, f"table {shard}", self._table_topic)
        finally:
            reader.close()

    def _records(self, reader: Reader, shard: int, start: int, end: int, step: str, topic: str) -> Iterator[LogRecord]:
        name = f"{topic}[{shard}]"
        for count, record in enumerate(
            records_between(reader, shard, start, end, clock=self._clock, stall_s=self._timeout_s, name=name)
        ):
            if count % _PROGRESS_RECORDS == 0:
                self._progress(step, record.offset - start, end - start)
            yield record

    def close(self) -> None:
        self._marks.close()
