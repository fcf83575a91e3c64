"""How long the worker took to apply the end of the WAL to the tables, by the broker's clock alone."""

from __future__ import annotations

import time
from collections.abc import Callable

from journal.config import Settings
from journal.errors import DeadlineError
from journal.kafka.ports import Kafka, LogRecord
from journal.topics.marks import FoundMark, MarkReader
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import Identity
from journal.wal.reading import WalReader

_LOOK_S = 0.05


def catch_up_seconds(
    kafka: Kafka, settings: Settings, identity: Identity, *, timeout_s: float, look: Callable[[], None]
) -> float:
    """Wait until every shard's newest mark has reached the WAL's last frame; returns the seconds from the append of
    that frame to the append of that mark, in the slowest shard.

    Nobody may write to the journal any more. `look` is called meanwhile and may raise. Raises DeadlineError.
    """
    request_s = settings.request_timeout_ms / 1000
    until = time.monotonic() + timeout_s
    wal = WalReader(kafka, settings.journal, identity.journal, identity.shards, time.monotonic)
    marks = MarkReader(kafka, table_topic(settings.journal), time.monotonic)
    slowest_ms = 0
    try:
        for shard in range(identity.shards):
            last = wal.last_frame(shard, wal.bounds(shard, request_s)[1], request_s)
            if last is None:
                continue
            record, frame = last
            while (found := marks.newest(shard, request_s)).mark.number < frame.number:
                if time.monotonic() > until:
                    behind = frame.number - found.mark.number
                    what = f"{wal_topic(settings.journal)}[{shard}]"
                    raise DeadlineError(f"the worker is {behind} frames behind the end of {what} after {timeout_s:g} s")
                look()
                time.sleep(_LOOK_S)
            row = _row_of(kafka, settings, shard, found, request_s)
            slowest_ms = max(slowest_ms, row.timestamp - record.timestamp)
    finally:
        wal.close()
        marks.close()
    return slowest_ms / 1000


def _row_of(kafka: Kafka, settings: Settings, shard: int, found: FoundMark, timeout_s: float) -> LogRecord:
    """The record of the table topic that holds this mark."""
    reader = kafka.reader(table_topic(settings.journal))
    try:
        reader.seek({shard: found.place})
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            for record in reader.poll(timeout_s):
                if record.offset == found.place:
                    return record
        raise DeadlineError(f"{table_topic(settings.journal)}[{shard}]@{found.place} could not be read")
    finally:
        reader.close()
