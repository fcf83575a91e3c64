"""Reading the WAL: a shard's last frame, and frames between two offsets. Committed records only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from journal.errors import DeadlineError, FrameError
from journal.kafka.control import wal_topic
from journal.kafka.ports import READ_MS, Clock, Kafka, LogRecord
from journal.v1.journal_pb2 import Frame
from journal.wire.frames import decode_frame

_TAIL_OFFSETS = 4


class Tail(NamedTuple):
    """Where a shard's WAL stands: its last frame (number and group 0 if there is none) and its committed end."""

    number: int
    group: int
    end: int


class WalReader:
    """Committed frames of one journal. Records that are no frames are passed over: the worker reports them."""

    def __init__(
        self, kafka: Kafka, journal: str, uuid: bytes, shards: int, clock: Clock, *, wait_ms: int = READ_MS
    ) -> None:
        """`wait_ms` as of `Kafka.reader`."""
        self._topic = wal_topic(journal)
        self._reader = kafka.reader(self._topic, wait_ms=wait_ms)
        self._uuid = uuid
        self._shards = shards
        self._clock = clock

    def bounds(self, shard: int, timeout_s: float) -> tuple[int, int]:
        """First offset and committed end."""
        return self._reader.start_and_end(shard, timeout_s)

    def frames(
        self, shard: int, start: int, end: int, timeout_s: float, *, strict: bool = False
    ) -> Iterator[tuple[LogRecord, Frame]]:
        """Frames of one shard from offset `start` to before `end`. Raises DeadlineError if that takes longer.

        With `strict`, FrameError for the first record that is no frame.
        """
        until = self._clock() + timeout_s
        self._reader.seek({shard: start})
        while self._reader.position(shard) < end:
            left = until - self._clock()
            if left <= 0:
                raise DeadlineError(f"shard {shard} of the WAL could not be read to offset {end} in time")
            for record in self._reader.poll(left):
                if record.offset >= end:
                    return
                frame = self._decode(record, strict=strict)
                if frame is not None:
                    yield record, frame

    def tails(self, timeout_s: float) -> list[Tail]:
        """The last committed frame of every shard. All shards are read at once; one whose last offsets hold no frame
        (markers and aborted groups alone) is then looked at on its own."""
        until = self._clock() + timeout_s
        bounds = self._reader.bounds(range(self._shards), timeout_s)
        newest: list[Frame | None] = [None] * self._shards
        self._reader.seek({shard: max(start, end - _TAIL_OFFSETS) for shard, (start, end) in bounds.items()})
        while any(self._reader.position(shard) < end for shard, (_, end) in bounds.items()):
            left = until - self._clock()
            if left <= 0:
                raise DeadlineError("the last frames of the WAL could not be read in time")
            for record in self._reader.poll(left):
                shard = record.partition
                frame = self._decode(record) if record.offset < bounds[shard][1] else None
                before = newest[shard]
                if frame is not None and (before is None or frame.epoch >= before.epoch):
                    newest[shard] = frame
        return [
            self.tail_until(shard, bounds[shard][1], until - self._clock())
            if frame is None
            else Tail(frame.number, frame.group, bounds[shard][1])
            for shard, frame in enumerate(newest)
        ]

    def tail_until(self, shard: int, end: int, timeout_s: float) -> Tail:
        """The last committed frame of the newest epoch before `end`."""
        last = self.last_frame(shard, end, timeout_s)
        return Tail(0, 0, end) if last is None else Tail(last[1].number, last[1].group, end)

    def last_frame(self, shard: int, end: int, timeout_s: float) -> tuple[LogRecord, Frame] | None:
        """The last committed frame of the newest epoch before `end`, read backwards in growing steps."""
        until = self._clock() + timeout_s
        start, _ = self.bounds(shard, timeout_s)
        back = _TAIL_OFFSETS
        while True:
            since = max(start, end - back)
            last: tuple[LogRecord, Frame] | None = None
            for record, frame in self.frames(shard, since, end, until - self._clock()):
                if last is None or frame.epoch >= last[1].epoch:
                    last = record, frame
            if last is not None or since == start:
                return last
            back *= 16

    def _decode(self, record: LogRecord, *, strict: bool = False) -> Frame | None:
        """The record's frame; for one that is none, None or (`strict`) FrameError with its place."""
        try:
            return decode_frame(record.value, self._uuid, record.partition, self._shards)
        except FrameError as error:
            if not strict:
                return None
            topic, partition, offset = self._topic, record.partition, record.offset
            raise FrameError(error.reason, topic=topic, partition=partition, offset=offset) from None

    def close(self) -> None:
        self._reader.close()
