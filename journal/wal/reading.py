"""Reading the WAL: a shard's last frame, and frames between two offsets. Only committed records are read.

A reader that must see all that is committed by now reads to the high watermark, and waits for open transactions in
front of it to end. The last stable offset would not do: anybody's open transaction holds it back, so newer frames may
lie behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from journal.errors import (
    CorruptionError,
    DeadlineError,
    FormerFrameError,
    FrameError,
    GapError,
    HangingTransactionError,
    OperatingError,
    StaleReadError,
)
from journal.kafka.ports import LOOK_MS, READ_MS, Kafka, LogRecord
from journal.process.clocks import Clock
from journal.topics.names import wal_topic
from journal.wire.frames import Frame, decode_frame
from journal.words import first_few

_TAIL_OFFSETS = 4
_WHY_S = 1.0
"""The time allowed for finding out why a read missed its deadline."""


class Tail(NamedTuple):
    """Where a shard's WAL stands: its last frame (number, group and epoch are 0 if there is none), the `end` that it
    was read to, and the `start` of a log without a frame."""

    number: int
    group: int
    epoch: int
    end: int
    start: int = 0


def tail_at(last: Frame | None, end: int) -> Tail:
    """The tail of a shard whose last frame is `last`; None means that it has none."""
    return Tail(0, 0, 0, end) if last is None else Tail(last.number, last.group, last.epoch, end)


def require_nothing_between(journal: str, ends: Mapping[int, int], sent: Iterable[tuple[int, int]]) -> None:
    """Raises StaleReadError unless the first record that was `sent` to each shard lies at the offset that the shard was
    read to, which `ends` has. `sent` are shard and offset of each record.

    A leader that takes a write has all that was committed before it. So a read that ended right before the write has
    missed nothing, whoever answered it.
    """
    left = dict(ends)
    for shard, offset in sent:
        end = left.pop(shard, offset)
        if offset != end:
            topic = wal_topic(journal)
            raise StaleReadError(f"{topic}[{shard}] was read to offset {end}, and what was sent next is at {offset}")


def wal_lost(journal: str, shard: int, offset: int, lost: str, mend: str) -> CorruptionError:
    """The error for a partition that has lost an acknowledged end. `mend` begins with a command."""
    return CorruptionError(
        f"{lost}: the partition has lost what was acknowledged. `{mend}",
        topic=wal_topic(journal),
        partition=shard,
        offset=offset,
    )


class WalReader:
    """Reads committed frames of one journal. Records that are no frames are passed over, because the worker reports
    them; only a frame of a release before 0.1.0 raises FormerFrameError."""

    def __init__(
        self, kafka: Kafka, journal: str, uuid: bytes, shards: int, clock: Clock, *, wait_ms: int = READ_MS
    ) -> None:
        """`wait_ms` is that of `Kafka.reader`."""
        self._kafka = kafka
        self._topic = wal_topic(journal)
        self._reader = kafka.reader(self._topic, wait_ms=wait_ms)
        self._uuid = uuid
        self._shards = shards
        self._clock = clock

    def bounds(self, shard: int, timeout_s: float) -> tuple[int, int]:
        """The first offset and the committed end."""
        return self._reader.start_and_end(shard, timeout_s)

    def high_watermarks(self, shards: Iterable[int], timeout_s: float) -> dict[int, int]:
        """The high watermarks: all records committed by now lie before them, even behind an open transaction."""
        unfiltered = self._kafka.reader(self._topic, committed=False, wait_ms=LOOK_MS)
        try:
            return unfiltered.ends(tuple(shards), timeout_s)
        finally:
            unfiltered.close()

    def frames(
        self, shard: int, start: int, end: int, timeout_s: float, *, strict: bool = False
    ) -> Iterator[tuple[LogRecord, Frame]]:
        """The frames of one shard from offset `start` to before `end`.

        Raises DeadlineError after `timeout_s`, or HangingTransactionError if an open transaction is the reason. With
        `strict` it raises FrameError for the first record that is no frame.
        """
        until = self._clock() + timeout_s
        self._reader.seek({shard: start})
        while self._reader.position(shard) < end:
            left = until - self._clock()
            if left <= 0:
                raise self._late({shard: end})
            for record in self._reader.poll(left):
                if record.offset >= end:
                    return
                frame = self._decode(record, strict=strict)
                if frame is not None:
                    yield record, frame

    def tails(self, timeout_s: float) -> list[Tail]:
        """The last committed frame of every shard. Raises what `frames` raises.

        All shards are read at once. A shard whose last offsets hold no frame, but only transaction markers and aborted
        groups, is then read on its own."""
        until = self._clock() + timeout_s
        starts = self._reader.bounds(range(self._shards), timeout_s)
        ends = self.high_watermarks(range(self._shards), timeout_s)
        looks = {shard: max(starts[shard][0], end - _TAIL_OFFSETS) for shard, end in ends.items()}
        try:
            newest = self._newest_of(looks, ends, until)
        except GapError:  # a trim has just deleted nearly all of the log
            newest = {}
        return [
            tail_at(newest[shard], end) if shard in newest else self.tail_until(shard, end, until - self._clock())
            for shard, end in ends.items()
        ]

    def _newest_of(self, starts: Mapping[int, int], ends: Mapping[int, int], until: float) -> dict[int, Frame]:
        """The last frame of the newest epoch in each shard, where there is one between these offsets."""
        newest: dict[int, Frame] = {}
        self._reader.seek(starts)
        while any(self._reader.position(shard) < end for shard, end in ends.items()):
            left = until - self._clock()
            if left <= 0:
                raise self._late(ends)
            for record in self._reader.poll(left):
                shard = record.partition
                frame = self._decode(record) if record.offset < ends[shard] else None
                if frame is not None and (shard not in newest or frame.epoch >= newest[shard].epoch):
                    newest[shard] = frame
        return newest

    def tail_until(self, shard: int, end: int, timeout_s: float) -> Tail:
        """The last committed frame of the newest epoch before `end`."""
        last = self.last_frame(shard, end, timeout_s)
        return Tail(0, 0, 0, end, self.bounds(shard, timeout_s)[0]) if last is None else tail_at(last[1], end)

    def last_frame(self, shard: int, end: int, timeout_s: float) -> tuple[LogRecord, Frame] | None:
        """The last committed frame of the newest epoch before `end`, looked for backwards in growing steps."""
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

    def _late(self, ends: Mapping[int, int]) -> OperatingError:
        """The error of a read to these ends that was not done in time, with the reason."""
        for shard, stable in self._reader.ends(tuple(ends), _WHY_S).items():
            if stable < ends[shard]:
                return HangingTransactionError(
                    f"{self._topic}[{shard}] holds a transaction that nobody ends, and what may be committed behind it "
                    f"cannot be read: `kafka-transactions.sh find-hanging --topic {self._topic}` finds it, and `abort` "
                    "ends it"
                )
        left = first_few([f"shard {shard} to offset {end}" for shard, end in ends.items()])
        return DeadlineError(f"the WAL could not be read in time: {left}")

    def _decode(self, record: LogRecord, *, strict: bool = False) -> Frame | None:
        """The record's frame. For a record that is none, None; with `strict` a FrameError that names its place."""
        try:
            return decode_frame(record.value, self._uuid, record.partition, self._shards)
        except FrameError as error:
            if not strict and not isinstance(error, FormerFrameError):
                return None
            topic, partition, offset = self._topic, record.partition, record.offset
            raise type(error)(error.reason, topic=topic, partition=partition, offset=offset) from None

    def close(self) -> None:
        self._reader.close()


def read_tails(kafka: Kafka, journal: str, uuid: bytes, shards: int, clock: Clock, timeout_s: float) -> list[Tail]:
    """The last committed frame of every shard. Raises OperatingError."""
    reader = WalReader(kafka, journal, uuid, shards, clock, wait_ms=LOOK_MS)
    try:
        return reader.tails(timeout_s)
    finally:
        reader.close()
