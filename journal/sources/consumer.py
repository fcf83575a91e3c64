"""A consumer of assigned partitions of many topics. It joins no group, commits nothing, and never resets an offset.

If a partition cannot be read on (it is gone, or its position is outside the log), that is reported once, and the other
partitions go on. The end-of-partition event gives the offset after trailing transaction markers and aborted records, up
to which all was read.

Hot path: for each record it makes one tuple, and calls librdkafka once for each field.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from journal.errors import ClosedError, JournalError, KafkaUnavailableError, TopicError
from journal.kafka.access import Request, on_topic
from journal.kafka.errors import error_of, gap_error, is_outside_log, operating_error
from journal.kafka.ports import FOLLOW_MS
from journal.kafka.settings import ClientEvents, ClientSettings, config_error
from journal.process.clocks import Clock
from journal.routing.outcomes import Header
from journal.routing.source_record import SourceRecord

Partition = tuple[str, int]

T = TypeVar("T")

_headers_of: Callable[[Message], Sequence[Header] | None] = methodcaller("headers")
"""This calls `headers()` of a message safely. If a header's name is not UTF-8, the client has a bug: it sets an error,
but it also returns a list, which contains a null pointer. CPython may optimize a call that is written as
`message.headers()`, and then it overlooks the error. With `methodcaller`, CPython always notices it and raises
SystemError.
"""


def headers_of(message: Message) -> Sequence[Header] | None:
    """A record's headers; None if the client cannot give them, because a header's name is not UTF-8."""
    try:
        return _headers_of(message) or ()
    except UnicodeDecodeError:
        return None
    except SystemError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        return None


class SourceConsumer:
    """The consumer of all sources. Used by one thread."""

    def __init__(self, settings: ClientSettings, group: str, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._access = settings.access
        self._events = ClientEvents(settings)
        config = settings.reader(group, committed=True, wait_ms=FOLLOW_MS)
        self._positions: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._stopped: dict[Partition, JournalError] = {}
        try:
            self._consumer: Consumer | None = Consumer({**config, **self._events.callbacks()})
        except KafkaException as error:
            raise config_error(error) from error

    def topics(self, timeout_s: float) -> dict[str, int]:
        """The number of partitions of every existing topic."""
        found = self._asked("list topics", (), lambda consumer: consumer.list_topics(timeout=timeout_s))
        return {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}

    def earliest(self, partition: Partition, timeout_s: float) -> int:
        """The first offset of the partition's log."""
        return self._bounds(partition, timeout_s)[0]

    def latest(self, partition: Partition, timeout_s: float) -> int:
        """The offset after the last committed record."""
        return self._bounds(partition, timeout_s)[1]

    def at(self, partition: Partition, timestamp_ms: int, timeout_s: float) -> int:
        """The offset of the first record with that time or a later one; the end of the log if there is none."""
        # the end is read first, so that a record committed between the two requests is not passed over
        end = self.latest(partition, timeout_s)
        asked = [TopicPartition(*partition, timestamp_ms)]
        found = self._asked(
            f"offsets of {partition[0]}", (partition,), lambda c: c.offsets_for_times(asked, timeout=timeout_s)
        )
        offset: int = found[0].offset
        return end if offset in (OFFSET_END, OFFSET_BEGINNING) else offset

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions, and no others, from these offsets on."""
        self._positions = dict(positions)
        self._ends = {}
        self._stopped = {}
        parts = [TopicPartition(topic, part, offset) for (topic, part), offset in positions.items()]
        self._asked("assign", positions, lambda consumer: consumer.assign(parts))

    def poll(self, timeout_s: float, records_max: int) -> list[SourceRecord]:
        """The records that have arrived, for each partition in offset order; empty if none comes in time."""
        consumer, records = self._open(), list[SourceRecord]()
        if not self._positions:
            return records
        try:
            first = consumer.poll(timeout_s)
            if first is not None:
                self._take([first, *consumer.consume(records_max - 1, 0)], records)
        except KafkaException as error:
            raise operating_error("read the sources", error_of(error), self._asks(self._positions)) from error
        return records

    def reached(self, partition: Partition) -> int:
        """The offset up to which `poll` has given all records of the partition."""
        return max(self._positions[partition], self._ends.get(partition, 0))

    def stopped(self) -> dict[Partition, JournalError]:
        """The error by partition, for each partition that cannot be read on."""
        return dict(self._stopped)

    def lag(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """The number of offsets from each position to the end of its partition's log, if it is known without a request.

        If all records of a partition were given, its lag is 0, although transaction markers may follow.
        """
        found: dict[Partition, int] = {}
        for partition, position in positions.items():
            if position == self._positions.get(partition):
                position = self.reached(partition)
            try:
                _, end = self._open().get_watermark_offsets(TopicPartition(*partition), cached=True)
            except KafkaException:
                continue  # librdkafka has not fetched from it yet
            if end >= 0:
                found[partition] = max(0, end - position)
        return found

    def close(self) -> None:
        # The consumer is dropped and not closed, because it has no group to leave.
        self._consumer = None

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _take(self, messages: Sequence[Message], records: list[SourceRecord]) -> None:
        positions, add, new = self._positions, records.append, tuple.__new__
        for message in messages:
            error = message.error()
            topic, part, offset = message.topic(), message.partition(), message.offset()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF and topic and part is not None and offset is not None:
                    self._ends[topic, part] = offset
                else:
                    self._meet(error, topic or "", -1 if part is None else part)
                continue
            if topic is None or part is None or offset is None or offset < positions.get((topic, part), offset + 1):
                continue
            positions[topic, part] = offset + 1
            key, value, headers = message.key(), message.value(), headers_of(message)
            add(new(SourceRecord, (topic, part, offset, message.timestamp()[1], key, value, headers)))

    def _meet(self, error: KafkaError, topic: str, part: int) -> None:
        doing = f"read {topic}[{part}]"
        if is_outside_log(error):
            self._stop((topic, part), gap_error(error, topic, part, self._positions.get((topic, part), -1)))
            return
        met = operating_error(doing, error, self._asks([(topic, part)]))
        if isinstance(met, KafkaUnavailableError):
            return  # librdkafka tries again by itself
        gone = isinstance(met, TopicError)
        for other in self._positions:
            if other == (topic, part) or (gone and other[0] == topic):
                self._stop(other, TopicError(f"topic {topic} is gone") if gone else met)

    def _stop(self, partition: Partition, error: JournalError) -> None:
        self._stopped.setdefault(partition, error)

    def _bounds(self, partition: Partition, timeout_s: float) -> tuple[int, int]:
        asked = TopicPartition(*partition)
        start, end = self._asked(
            f"offsets of {partition[0]}[{partition[1]}]",
            (partition,),
            lambda consumer: consumer.get_watermark_offsets(asked, timeout_s, False),
        )
        return start, end

    def _asked(self, doing: str, partitions: Iterable[Partition], call: Callable[[Consumer], T]) -> T:
        try:
            return call(self._open())
        except KafkaException as error:
            raise operating_error(doing, error_of(error), self._asks(partitions)) from error

    def _asks(self, partitions: Iterable[Partition]) -> Request:
        topics = sorted({topic for topic, _ in partitions})
        return self._access.asks(*(on_topic(topic, "Read") for topic in topics))

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise ClosedError("this consumer is closed")
        return self._consumer
