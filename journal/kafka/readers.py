"""A consumer of assigned partitions with confluent-kafka. It is in no group, commits nothing, and resets no offset.

These facts of librdkafka (2.16) with Kafka 4 shaped this file. The end-of-partition event carries the offset after
trailing transaction markers and aborted records, and it comes again whenever the end has moved. A watermark query
honours the isolation level: with read_committed, its high watermark is the last stable offset. `consume` waits until it
has as many records as it may return, so only `poll` waits here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from journal.errors import ClosedError, JournalError, KafkaUnavailableError, TopicError
from journal.kafka.access import on_topic
from journal.kafka.errors import damage_error, error_of, gap_error, is_outside_log, operating_error
from journal.kafka.ports import READ_MS, LogRecord, RecordRun
from journal.kafka.settings import ClientEvents, ClientSettings, config_error
from journal.process.clocks import Clock

RECORDS_PER_POLL = 5000

GROUP_OF_READERS = "kafka-journal.reader"
"""librdkafka requires a group's name, and asks for its coordinator. Readers join no group and commit nothing, so they
need no permission for it."""

_ASK_AGAIN_S = 1.0

_TOPIC_SPREADS_S = 3.0
"""Seconds after which a topic that is not found counts as missing. Brokers hear of a new topic later than the broker
that made it."""
_LEADER_ANSWERS_S = 2.0
_ASK_TOPIC_AGAIN_S = 0.05

_NO_EPOCH = -1
_START, _END = -2, -1
"""Special times in the protocol's ListOffsets, for a log's first offset and its end."""


_key_of = cast(Callable[[Message], bytes | None], Message.key)
_value_of = cast(Callable[[Message], bytes | None], Message.value)
_partition_of: Callable[[Message], int | None] = Message.partition
_offset_of = cast(Callable[[Message], int], Message.offset)  # it is only called for messages without an error
_epoch_of: Callable[[Message], int | None] = Message.leader_epoch
_error_of: Callable[[Message], KafkaError | None] = Message.error


class _Run:
    """A `ports.RecordRun` that keeps the messages, and takes their parts out when they are asked for."""

    __slots__ = ("_messages", "offsets", "partition")

    def __init__(self, partition: int, offsets: list[int], messages: list[Message]) -> None:
        self.partition = partition
        self.offsets: Sequence[int] = offsets
        self._messages = messages

    def keys(self) -> list[bytes | None]:
        return list(map(_key_of, self._messages))

    def values(self) -> list[bytes | None]:
        return list(map(_value_of, self._messages))

    def records(self, first: int = 0, end: int | None = None) -> list[LogRecord]:
        new, partition = tuple.__new__, self.partition
        return [
            new(
                LogRecord,
                (partition, offset, message.timestamp()[1], message.key(), message.value(), _epoch_of(message)),
            )
            for offset, message in zip(self.offsets[first:end], self._messages[first:end], strict=True)
        ]


class KafkaReader:
    """A `ports.Reader`."""

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        *,
        committed: bool,
        wait_ms: int = READ_MS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._events = ClientEvents(settings)
        self._unavailable_after_s = settings.unavailable_after_s
        self._down_since: float | None = None
        self._positions: dict[int, int] = {}
        self._error: JournalError | None = None
        self._asks = settings.access.asks(on_topic(topic, "Read"))
        config = settings.reader(GROUP_OF_READERS, committed=committed, wait_ms=wait_ms)
        try:
            self._consumer: Consumer | None = Consumer({**config, **self._events.callbacks()})
        except KafkaException as error:
            raise config_error(error) from error

    def seek(self, positions: Mapping[int, int], leader_epochs: Mapping[int, int] | None = None) -> None:
        self._error = None
        self._positions = dict(positions)
        known = leader_epochs or {}
        self._open().assign(
            [
                TopicPartition(self._topic, part, offset, leader_epoch=known.get(part, _NO_EPOCH))
                for part, offset in positions.items()
            ]
        )

    def poll(self, timeout_s: float) -> list[LogRecord]:
        runs = self.poll_runs(timeout_s)
        return runs[0].records() if len(runs) == 1 else [record for run in runs for record in run.records()]

    def poll_runs(self, timeout_s: float) -> list[RecordRun]:
        if self._error is not None:
            raise self._error.again()
        consumer = self._open()
        deadline = self._clock() + timeout_s
        runs: list[RecordRun] = []
        left = timeout_s
        before = dict(self._positions)
        try:
            while not runs and self._error is None and self._positions == before:
                first = consumer.poll(left)
                if first is not None:
                    self._take([first, *consumer.consume(RECORDS_PER_POLL - 1, 0)], runs)
                left = max(0.0, deadline - self._clock())
                if first is None and left == 0.0:
                    break
        except KafkaException as error:
            raise operating_error(f"read {self._topic}", error_of(error), self._asks) from error
        if self._error is not None and not runs:
            raise self._error.again()
        if not runs:
            self._check_brokers()
        return runs

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def start_and_end(self, partition: int, timeout_s: float) -> tuple[int, int]:
        consumer, asked = self._open(), TopicPartition(self._topic, partition)
        until = self._clock() + timeout_s
        known_by = self._clock() + min(timeout_s, _TOPIC_SPREADS_S)
        try_s = min(timeout_s / 2, _LEADER_ANSWERS_S)
        while True:
            left = max(0.001, min(try_s, until - self._clock()))
            try:
                answer = consumer.get_watermark_offsets(asked, left, False)
            except KafkaException as error:
                doing = f"offsets of {self._topic}[{partition}]"
                refused = operating_error(doing, error_of(error), self._asks)
                now = self._clock()
                unavailable = isinstance(refused, KafkaUnavailableError) and now < until
                if not unavailable and not (isinstance(refused, TopicError) and now < known_by):
                    raise refused from error
                if (hidden := self._ask_who_leads(left)) is not None:
                    raise operating_error(doing, hidden, self._asks) from error
            else:
                self._heard()
                return answer

    def bounds(self, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        """Bounds of many partitions, with two requests per broker instead of two per partition. What these requests do
        not tell is left to `start_and_end`, which handles errors."""
        until = self._clock() + timeout_s
        starts = self._offsets(_START, partitions, until)
        ends = self._offsets(_END, partitions, until) if starts else {}
        return {
            part: (starts[part], ends[part])
            if part in starts and part in ends
            else self.start_and_end(part, max(0.001, until - self._clock()))
            for part in partitions
        }

    def ends(self, partitions: Sequence[int], timeout_s: float) -> dict[int, int]:
        until = self._clock() + timeout_s
        ends = self._offsets(_END, partitions, until)
        return {
            part: ends[part] if part in ends else self.start_and_end(part, max(0.001, until - self._clock()))[1]
            for part in partitions
        }

    def at_time(self, time_ms: int, partitions: Sequence[int], timeout_s: float) -> dict[int, int]:
        """The offset of the first record of each partition that has this time or a later one, in ms since 1970; a
        partition without such a record is left out."""
        try:
            answers = self._open().offsets_for_times(
                [TopicPartition(self._topic, part, time_ms) for part in partitions], timeout_s
            )
        except KafkaException as error:
            raise operating_error(f"offsets of {self._topic} by time", error_of(error), self._asks) from error
        for answer in answers:
            if answer.error is not None:
                doing = f"offset of {self._topic}[{answer.partition}] by time"
                raise operating_error(doing, answer.error, self._asks)
        return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}

    def _offsets(self, which: int, partitions: Sequence[int], until: float) -> dict[int, int]:
        """Offsets of these partitions, as far as the leaders that librdkafka knows tell them in time."""
        asked = [TopicPartition(self._topic, part, which) for part in partitions]
        left = (until - self._clock()) / 2
        try:
            answers = self._open().offsets_for_times(asked, max(0.001, min(left, _LEADER_ANSWERS_S)))
        except KafkaException:
            return {}
        self._heard()
        return {answer.partition: answer.offset for answer in answers if answer.error is None and answer.offset >= 0}

    def _ask_who_leads(self, timeout_s: float) -> KafkaError | None:
        """Asks again which broker leads the topic's partitions: librdkafka by itself keeps asking the leader that it
        knows, even a dead one.

        librdkafka reports a topic that it may not see as missing. This returns the error of authorisation then, else
        None.
        """
        time.sleep(_ASK_TOPIC_AGAIN_S)
        with suppress(KafkaException):
            told: KafkaError | None = self._open().list_topics(self._topic, timeout_s).topics[self._topic].error
            if told is not None and told.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return told
        return None

    def close(self) -> None:
        # The consumer is dropped, not closed: it has no group to leave, and dropping the last reference ends it in
        # under a millisecond.
        self._consumer = None

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise ClosedError("this reader is closed")
        return self._consumer

    def _take(self, messages: list[Message], runs: list[RecordRun]) -> None:
        """Hot path: consecutive messages of one partition are handled together, without a loop of ours."""
        at = 0
        for partition, run in groupby(map(_partition_of, messages)):
            end = at + len(list(run))
            self._take_run(partition, messages[at:end], runs)
            at = end
        self._heard()

    def _take_run(self, partition: int | None, messages: list[Message], runs: list[RecordRun]) -> None:
        if not any(map(_error_of, messages)):
            self._add(partition, messages, runs)
            return
        for message in messages:
            error = message.error()
            if error is None:
                self._add(partition, [message], runs)
            else:
                self._meet(error, partition, message.offset())

    def _add(self, partition: int | None, messages: list[Message], runs: list[RecordRun]) -> None:
        if partition is None or partition not in self._positions:
            return
        position = self._positions[partition]
        offsets = list(map(_offset_of, messages))
        if offsets[0] < position:
            messages = [message for message, offset in zip(messages, offsets, strict=True) if offset >= position]
            offsets = [offset for offset in offsets if offset >= position]
        if messages:
            self._positions[partition] = offsets[-1] + 1
            runs.append(_Run(partition, offsets, messages))

    def _meet(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if partition in self._positions and offset is not None:
                self._positions[partition] = max(offset, self._positions[partition])
        elif self._error is not None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return
        elif partition is not None and partition not in self._positions:
            return  # the error concerns records from before the last seek
        else:
            at = -1 if partition is None else partition
            position = self._positions.get(at, -1)
            if is_outside_log(error):
                self._error = gap_error(error, self._topic, at, position)
            else:
                damage = damage_error(error, self._topic, at, position if offset is None else offset)
                self._error = damage or operating_error(f"read {self._topic}[{partition}]", error, self._asks)

    def _heard(self) -> None:
        self._events.brokers_down = False
        self._down_since = None

    def _check_brokers(self) -> None:
        """Raises KafkaUnavailableError when no broker has been connected for `unavailable_after_s`. During a shorter
        outage the reader just waits."""
        if not self._events.brokers_down:
            return
        now = self._clock()
        if self._down_since is None:
            self._down_since = now
        elif now - self._down_since >= self._unavailable_after_s and self._positions:
            # A broker that is back sends nothing while there is nothing to read, so it is asked.
            try:
                self.start_and_end(next(iter(self._positions)), _ASK_AGAIN_S)
            except JournalError as error:
                reason = f"read {self._topic}: no broker for {now - self._down_since:.0f} s"
                raise KafkaUnavailableError(reason) from error
