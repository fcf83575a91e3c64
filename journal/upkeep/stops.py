"""Why a shard does not move: the first WAL record behind its mark that a worker cannot apply.

No worker is needed to find it: this decodes and folds the records behind the mark as a worker does, until one is
refused or a whole group has passed. After a whole group a worker can make a checkpoint, so there is nothing to mend.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from journal.errors import CorruptionError, FrameError, GapError
from journal.fold.engine import Fold
from journal.kafka.ports import Kafka, LogRecord
from journal.process.clocks import Clock
from journal.topics.marks import records_between
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Identity, Mark, Skipped
from journal.wire.frames import Frame, decode_frame


class Stop(NamedTuple):
    """The record at which a shard stops, and why. `record` is None for an offset that is gone or damaged; `frame` is
    None for a record that is no frame."""

    offset: int
    reason: str
    record: LogRecord | None
    frame: Frame | None


class Ahead(NamedTuple):
    """The part of a shard's WAL behind its mark: the first record's timestamp (ms; 0 if there is no record), and the
    record at which the shard stops, if there is one before the next checkpoint."""

    since: int
    stop: Stop | None


class _NoRows:
    """A base without rows: whether a frame may be applied depends on the mark alone."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return ()


def look_ahead(
    kafka: Kafka, identity: Identity, mark: Mark, skips: Collection[int], *, clock: Clock, timeout_s: float
) -> Ahead:
    """What a worker would find behind `mark`, if it leaves out the WAL offsets in `skips`."""
    topic, shard, since = wal_topic(identity.name), mark.shard, 0
    reader = kafka.reader(topic)
    try:
        start, end = reader.start_and_end(shard, timeout_s)
        next_offset = mark.offset + 1
        if start > next_offset:
            return Ahead(0, Stop(next_offset, f"frames are gone: the WAL begins at offset {start}", None, None))
        if end < next_offset:
            return Ahead(0, Stop(next_offset, f"frames are gone: the WAL ends at offset {end}", None, None))
        fold = Fold(mark, _NoRows(), updates_row_bytes_max=0)
        for record in records_between(
            reader, shard, next_offset, end, clock=clock, stall_s=timeout_s, name=f"{topic}[{shard}]"
        ):
            since = since or record.timestamp
            stop = _meet(fold, record, identity, skips)
            if stop is not None or fold.at_group_boundary:
                return Ahead(since, stop)
        return Ahead(since, None)
    except CorruptionError as error:  # the record cannot be read
        return Ahead(since, Stop(error.offset, error.reason, None, None))
    finally:
        reader.close()


def _meet(fold: Fold, record: LogRecord, identity: Identity, skips: Collection[int]) -> Stop | None:
    """Apply or skip one record; returns the stop if neither is possible."""
    frame: Frame | None = None
    reason = ""
    try:
        frame = decode_frame(record.value, identity.journal, record.partition, identity.shards)
        if record.offset not in skips:
            fold.apply(record.offset, record.timestamp, frame)
            return None
    except (FrameError, GapError) as error:
        reason = error.reason
    if record.offset in skips:
        fold.skip(Skipped(shard=record.partition, offset=record.offset), record.timestamp, frame)
        return None
    return Stop(record.offset, reason, record, frame)
