"""Reading partitions without a copy: a shard's newest mark, found from the end of its table partition, and plain scans.

Rows and the mark behind them are one transaction, so the newest mark lies a few offsets before the end. It is searched
backwards in growing steps, so the table's size does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.errors import DeadlineError, RowError
from journal.kafka.ports import Kafka, LogRecord, Reader
from journal.process.clocks import Clock
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key
from journal.wire.rows import mark_name

_FIRST_LOOK_OFFSETS = 16
_GROWTH = 16


class FoundMark(NamedTuple):
    """A shard's newest mark (with offset -1 if there is none yet); the offset of its row (-1 if there is none); the end
    of the partition at the time of the search (committed rows in between belong to no checkpoint); when the row was
    appended, in ms since 1970 by the broker's clock; and the name that the next mark must give as its predecessor."""

    mark: Mark
    place: int
    end: int
    timestamp: int
    name: int


def mark_of(topic: str, record: LogRecord) -> Mark:
    """The mark in a row with its shard's mark key. Raises RowError for bytes that are no mark, or the mark of another
    shard."""
    try:
        mark = Mark.FromString(record.value or b"")
    except DecodeError as error:
        reason = f"the mark does not parse: {error}"
        raise RowError(reason, topic=topic, partition=record.partition, offset=record.offset) from None
    if not record.value or mark.shard != record.partition:
        reason = f"the mark of shard {mark.shard}, or none"
        raise RowError(reason, topic=topic, partition=record.partition, offset=record.offset)
    return mark


def records_between(
    reader: Reader, partition: int, start: int, end: int, *, clock: Clock, stall_s: float, name: str
) -> Iterator[LogRecord]:
    """Records of one partition from offset `start` to before `end`, in bounded memory.

    Raises DeadlineError (which names the partition by `name`) if no record arrives for `stall_s`.
    """
    if start >= end:
        return
    reader.seek({partition: start})
    moved = clock()
    while (before := reader.position(partition)) < end:
        for record in reader.poll(stall_s):
            if record.offset >= end:
                return
            yield record
        if reader.position(partition) != before:
            moved = clock()
        elif clock() - moved > stall_s:
            raise DeadlineError(f"{name}: nothing could be read between offsets {before} and {end} for {stall_s:g} s")


class MarkReader:
    """Newest marks, read from the table topic."""

    def __init__(self, kafka: Kafka, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._reader = kafka.reader(self._topic)
        self._clock = clock

    def newest(self, shard: int, timeout_s: float) -> FoundMark:
        """The newest committed mark. Raises RowError for one that does not parse, and for rows without any mark: the
        cleaner had dropped all marks but the newest, and then Kafka has lost the partition's end.

        During the search the cleaner may drop the mark because a newer one was written. So the answer is "no mark" only
        if none was found and the partition has not grown meanwhile. Raises DeadlineError if this is not known in time.
        """
        until = self._clock() + timeout_s
        start, end = self._reader.start_and_end(shard, timeout_s)
        while True:
            last = self._last_between(shard, start, end, timeout_s)
            if last is not None and last.key == mark_key(shard):
                return self._found(last, end)
            before = end
            start, end = self._reader.start_and_end(shard, timeout_s)
            if end == before:
                if last is not None:
                    reason = (
                        "rows and no mark behind them: Kafka has lost the table's end, or somebody else wrote here; "
                        "OPERATIONS says how to make the table anew"
                    )
                    raise RowError(reason, topic=self._topic, partition=shard, offset=last.offset)
                return FoundMark(Mark(shard=shard, offset=-1), -1, end, 0, 0)
            if self._clock() > until:
                raise DeadlineError(f"{self._topic}[{shard}]: no mark was found in {timeout_s:g} s, and rows go on")

    def newest_of(self, shards: Collection[int], timeout_s: float) -> dict[int, FoundMark]:
        """`newest` of many shards. Marks near the end of their partitions, as workers write them, are read together."""
        until = self._clock() + timeout_s
        bounds = self._reader.bounds(tuple(shards), timeout_s)
        looks = {shard: max(start, end - _FIRST_LOOK_OFFSETS) for shard, (start, end) in bounds.items() if start < end}
        keys = {shard: mark_key(shard) for shard in looks}
        last: dict[int, LogRecord] = {}
        unread = set(looks)
        if unread:
            self._reader.seek(looks)
        while unread and (left_s := until - self._clock()) > 0:
            for record in self._reader.poll(left_s):
                shard = record.partition
                if record.key == keys[shard] and record.offset < bounds[shard][1]:
                    last[shard] = record
            unread = {shard for shard in unread if self._reader.position(shard) < bounds[shard][1]}
        return {
            shard: self._found(last[shard], end)
            if shard in last and shard not in unread
            else self.newest(shard, max(0.0, until - self._clock()))
            for shard, (_, end) in bounds.items()
        }

    def _last_between(self, shard: int, start: int, end: int, timeout_s: float) -> LogRecord | None:
        """The last mark; where there is none, a row."""
        key = mark_key(shard)
        row: LogRecord | None = None
        back = _FIRST_LOOK_OFFSETS
        upper = end
        while upper > start:
            since = max(start, end - back)
            last = self._last_of(shard, since, upper, timeout_s)
            if last is not None and last.key == key:
                return last
            row = row or last
            upper = since
            back *= _GROWTH
        return row

    def _last_of(self, shard: int, since: int, upper: int, timeout_s: float) -> LogRecord | None:
        """The last mark between two offsets; where there is none, the last row."""
        key = mark_key(shard)
        last: LogRecord | None = None
        name = f"{self._topic}[{shard}]"
        for record in records_between(
            self._reader, shard, since, upper, clock=self._clock, stall_s=timeout_s, name=name
        ):
            if last is None or record.key == key or last.key != key:
                last = record
        return last

    def _found(self, record: LogRecord, end: int) -> FoundMark:
        mark = mark_of(self._topic, record)
        return FoundMark(mark, record.offset, end, record.timestamp, mark_name(record.value or b""))

    def close(self) -> None:
        self._reader.close()
