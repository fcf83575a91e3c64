"""Committed records of a range of offsets, as columns, with the journal's own reader.

The reader skips aborted records, and its position tells when a range is done: markers of transactions take offsets too,
so the last record of a range may stand well before its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from journal.errors import DeadlineError
from journal.kafka.ports import LogRecord
from loaders.spark.read.ranges import ShardRange
from loaders.spark.read.source import JournalSource
from loaders.spark.read.topic_records import TopicRecords

BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of values after which a batch is full."""


def fetched(source: JournalSource, topic: str, of: ShardRange) -> Iterator[TopicRecords]:
    """The records of a range, in order. Raises GapError if some have been trimmed, DeadlineError if none arrive."""
    reader = source.kafka().reader(topic)
    try:
        reader.seek({of.shard: of.start})
        moved = time.monotonic()
        held: list[LogRecord] = []
        size = 0
        while (before := reader.position(of.shard)) < of.end:
            for record in reader.poll(1.0):
                if record.offset >= of.end:
                    break
                held.append(record)
                size += len(record.value or b"")
                if size >= BATCH_BYTES:
                    yield _as_columns(topic, held)
                    held, size = [], 0
            if reader.position(of.shard) != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > source.timeout_s:
                raise DeadlineError(
                    f"{topic}[{of.shard}]: nothing could be read between offsets {before} and {of.end} for "
                    f"{source.timeout_s:g} s"
                )
        if held:
            yield _as_columns(topic, held)
    finally:
        reader.close()


def _as_columns(topic: str, records: list[LogRecord]) -> TopicRecords:
    shards, offsets, timestamps, keys, values, _ = zip(*records, strict=True)
    return TopicRecords(
        topic, np.array(shards, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64), keys, values
    )
