"""Producers with confluent-kafka: transactional ones, and plain acknowledged writes.

Facts of librdkafka (2.16) against Kafka 4 that shaped this file:

- A fenced instance learns it at its next request, from AddPartitionsToTxn, Produce or EndTxn alike, and always as fatal
  _FENCED. A coordinator time-out looks exactly the same: it bumps the epoch, and the bumped epoch is nobody's.
- A fatal error is raised by whatever call serves callbacks next. When a delivery report is served in the same call, the
  C code loses the exception and Python raises SystemError instead, or (before Python 3.12, now and then) a KafkaError,
  which is no exception: no `except Exception` sees it, and it ends the thread.
- `Producer.close()` aborts the open transaction and flushes without limit. Dropping the last reference does neither and
  takes less than a millisecond, an open transaction or a dead broker notwithstanding. So `close` here only drops.
- The first init, or plain send, of a cold instance takes half a second, that of a connected one 4 ms; so they connect
  first. An init that settles an open transaction meets CONCURRENT_TRANSACTIONS and takes half a second all the same;
  given up after a tenth, the next instance's finds it settled (`journal.wal.fencing`).
- `send_offsets_to_transaction` never returns, whatever its time-out, when the broker that coordinates the group leaves
  the cluster while a request waits for it; not even when that broker is back. So it is called where it can be left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from journal.errors import (
    ClosedError,
    DeadlineError,
    FatalProducerError,
    InvalidOperationError,
    KafkaRefusedError,
    KafkaUnavailableError,
    RetriableProducerError,
)
from journal.kafka.access import Need, Request, on_cluster, on_group, on_topic, on_transactional_id
from journal.kafka.bounded_calls import call_within
from journal.kafka.commit_times import CommitTimes
from journal.kafka.errors import delivery_error, error_of, operating_error, producer_error
from journal.kafka.groups import metadata_of
from journal.kafka.ports import READ_MS, Consumed, Sent, nothing
from journal.kafka.settings import ClientEvents, ClientSettings, config_error, repeated_after_s
from journal.process.clocks import Clock

T = TypeVar("T")

_CONNECT_NUDGE_S = 0.001
_ROWS_PER_CALL = 5000
_SERVED_EVERY = 1000
"""Records after which what became of earlier ones is heard: their memory is used again while it is in the caches."""
_ENDS_LATE_S = 1.0
"""librdkafka ends a call at its own time-out; one that has not ended so long after it will not."""


class PartitionReports:
    """The delivery reports of one send to one partition, in the order in which it was sent."""

    __slots__ = ("first_error", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.first_error: KafkaError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Hot path: one call a row."""
        offset = message.offset() if error is None else None
        self.offsets.append(-1 if offset is None else offset)
        if error is not None and self.first_error is None:
            self.first_error = error


class Deliveries:
    """The delivery reports of one send.

    An idempotent producer's reports of a partition come in the order of its records, so a partition's records share one
    callback (0.8 microseconds a row with the produce call; a callback made for each row, 2.7).
    """

    def __init__(self) -> None:
        self.produced = 0
        self._partitions: dict[tuple[str, int], PartitionReports] = {}
        self._runs: list[tuple[PartitionReports, int]] = []
        """Of the records sent one after the other to one partition: its reports, and how many were sent before them."""

    def begin_run(self, topic: str, partition: int) -> PartitionReports:
        """What follows goes to this partition."""
        reports = self._partitions.setdefault((topic, partition), PartitionReports())
        self._runs.append((reports, self.produced))
        return reports

    @property
    def waiting(self) -> int:
        return self.produced - sum(len(reports.offsets) for reports in self._partitions.values())

    @property
    def first_error(self) -> KafkaError | None:
        errors = (reports.first_error for reports in self._partitions.values())
        return next((error for error in errors if error is not None), None)

    @property
    def failed_topic(self) -> str:
        """The topic of `first_error`; empty if there is none."""
        failed = (topic for (topic, _), reports in self._partitions.items() if reports.first_error is not None)
        return next(failed, "")

    def offsets(self) -> list[int]:
        """Offsets in the order of the records sent, once none is waited for.

        -1 where the broker does not say it: it had the record already, from a request whose answer was lost.
        """
        if len(self._partitions) == 1:
            return next(iter(self._partitions.values())).offsets
        offsets = {id(reports): iter(reports.offsets) for reports in self._partitions.values()}
        ends = [began for _, began in self._runs[1:]] + [self.produced]
        return [
            offset
            for (reports, began), end in zip(self._runs, ends, strict=True)
            for offset in islice(offsets[id(reports)], end - began)
        ]


class LostError(Exception):
    """A fatal error of librdkafka, whose exception was lost on the way."""


def with_lost_errors(call: Callable[[], T]) -> T:
    """What a call gives, or raises; LostError for what says of itself that something was lost, or is no exception."""
    try:
        return call()
    except SystemError as error:
        raise LostError from error
    except BaseException:
        raise
    except:  # noqa: E722  # only this sees a KafkaError
        # nothing may be raised in here: the next exception's context would be read from what is no exception
        pass
    raise LostError


class _Instance:
    """One confluent-kafka producer, its callbacks, and the sending that both kinds share."""

    def __init__(self, settings: ClientSettings, config: dict[str, object], clock: Clock) -> None:
        self.events = ClientEvents(settings)
        self._clock = clock
        self._connected = False
        self.failed_topic = ""
        """Of the record that librdkafka itself would not take."""
        try:
            self._producer: Producer | None = Producer({**config, **self.events.callbacks()})
        except KafkaException as error:
            raise config_error(error) from error

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            raise ClosedError("this producer is closed")
        return self._producer

    def connect(self, timeout_s: float) -> None:
        """Waits until a broker has told its metadata. That none did is for the call that follows to find.

        A new instance's main thread looks for a broker to connect to at once and then every second, and in one case of
        four at once is before it was told of any. So it is made to look again: by a request that is given no time.
        """
        if self._connected:
            return
        deadline = self._clock() + timeout_s
        with suppress(KafkaException):
            self.producer.list_topics(timeout=_CONNECT_NUDGE_S)
        with suppress(KafkaException):
            self._connected = bool(self.producer.cluster_id(max(0.0, deadline - self._clock())))

    def know(self, topics: Sequence[str], timeout_s: float) -> bool:
        """Connects, and asks who leads these topics; whether a broker told it. librdkafka keeps the answers."""
        deadline = self._clock() + timeout_s
        self.connect(timeout_s)
        try:
            for topic in topics:
                self.producer.list_topics(topic, max(0.001, deadline - self._clock()))
        except KafkaException:
            return False
        return self._connected

    def deliver(self, records: Iterable[Sent], deadline: float) -> Deliveries:
        """Produces and waits for the delivery reports; some are still `waiting` when the deadline came first.

        Hot path: one pass, the callback looked up only where the partition changes.
        """
        producer = self.producer
        produce = producer.produce
        deliveries = Deliveries()
        place: tuple[str, int] | None = None
        for topic, part, key, value, headers in records:
            if place != (topic, part):
                place = (topic, part)
                report = deliveries.begin_run(topic, part).report
            while True:
                try:
                    if headers:
                        produce(topic, value, key, part, report, headers=list(headers))
                    else:
                        produce(topic, value, key, part, report)
                except BufferError:
                    # librdkafka's queue is full: make room by waiting for reports of what is in it.
                    if self._clock() >= deadline:
                        deliveries.produced += 1  # this record, which then is waited for in vain
                        return deliveries
                    producer.poll(max(0.0, min(0.1, deadline - self._clock())))
                except KafkaException:
                    self.failed_topic = topic
                    raise
                else:
                    deliveries.produced += 1
                    break
        if deliveries.produced:
            producer.flush(max(0.0, deadline - self._clock()))
        return deliveries

    def enqueue(self, topic: str, partition: int, rows: Sequence[tuple[bytes, bytes | None]], deadline: float) -> bool:
        """Produces rows without reports, in any order; False when librdkafka's queue had no room for all in time."""
        producer = self.producer
        for first in range(0, len(rows), _ROWS_PER_CALL):
            messages: list[dict[str, object]] = [
                {"key": key, "value": value} for key, value in rows[first : first + _ROWS_PER_CALL]
            ]
            while producer.produce_batch(topic, messages, partition) < len(messages):
                if self._clock() >= deadline:
                    return False
                messages = [_again(message) for message in messages if "_error" in message]
                producer.poll(max(0.0, min(0.1, deadline - self._clock())))
            producer.poll(0)
        return True

    def enqueue_records(self, records: Iterable[Sent], deadline: float) -> bool:
        """The same for records of any partitions and with headers, each partition's in their order.

        Hot path: arguments by name cost a sixth more.
        """
        producer = self.producer
        produce = producer.produce
        left = _SERVED_EVERY
        for topic, part, key, value, headers in records:
            left -= 1
            if not left:
                left = _SERVED_EVERY
                producer.poll(0)
            while True:
                try:
                    produce(topic, value, key, part, None, None, 0, headers if type(headers) is list else list(headers))
                except BufferError:
                    if self._clock() >= deadline:
                        return False
                    producer.poll(max(0.0, min(0.1, deadline - self._clock())))
                else:
                    break
        return True

    def discard(self) -> None:
        self._producer = None


def _again(message: dict[str, object]) -> dict[str, object]:
    """A message that `produce_batch` refused for want of room. Raises for one that it refused for anything else."""
    error = message.pop("_error")
    if not isinstance(error, KafkaError) or error.code() != KafkaError._QUEUE_FULL:
        raise KafkaException(error)
    return message


class KafkaTransactionalProducer:
    """`ports.TransactionalProducer`."""

    def __init__(
        self, settings: ClientSettings, transactional_id: str, times: CommitTimes, clock: Clock = time.monotonic
    ) -> None:
        """`times` are those of earlier producers of this id."""
        backoff_ms = times.backoff_ms
        self._instance = _Instance(settings, settings.transactional(transactional_id, backoff_ms), clock)
        self._times = times
        self._repeated_after_s = repeated_after_s(backoff_ms)
        self._settings = settings
        self._clock = clock
        self._name = transactional_id
        self._groups: dict[str, object] = {}
        """What librdkafka wants to know of groups whose offsets were sent."""

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        return self._instance.know(topics, timeout_s)

    def init(self, timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        self._instance.connect(timeout_s)
        left = max(0.001, deadline - self._clock())
        self._call("init", lambda producer: producer.init_transactions(left))

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        remaining = iter(records)
        first = next(remaining, None)
        if first is None:
            raise InvalidOperationError("a transaction needs at least one record")
        deadline = self._clock() + timeout_s
        self._call("begin transaction", lambda producer: producer.begin_transaction())
        deliveries = self._call("send", lambda _: self._instance.deliver(chain((first,), remaining), deadline))
        if deliveries.first_error is not None and not deliveries.waiting:
            topic = deliveries.failed_topic
            raise delivery_error(deliveries.first_error, topic, self._asks(on_topic(topic, "Write")))
        offsets = [] if deliveries.waiting else deliveries.offsets()
        if deliveries.waiting or -1 in offsets:
            raise FatalProducerError(
                f"{self._name}: send: not every record is known to be written, after {timeout_s} s"
            )
        return offsets

    def send_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        timeout_s: float,
        *,
        beside: Iterable[Sent] = (),
        meanwhile: Callable[[], object] = nothing,
    ) -> int:
        """Hot path: a row costs 0.9 microseconds; with a report of its own, 1.5."""
        if not rows:
            raise InvalidOperationError("a transaction needs at least one record")
        deadline = self._clock() + timeout_s
        self._call("begin transaction", lambda producer: producer.begin_transaction())
        if not self._call("send", lambda _: self._instance.enqueue(topic, partition, rows[:-1], deadline)):
            raise FatalProducerError(f"{self._name}: send: no room for every row within {timeout_s} s")
        if not self._call("send", lambda _: self._instance.enqueue_records(beside, deadline)):
            raise FatalProducerError(f"{self._name}: send: no room for every record within {timeout_s} s")
        meanwhile()
        last = Sent(topic, partition, *rows[-1])
        deliveries = self._call("send", lambda _: self._instance.deliver((last,), deadline))
        if deliveries.first_error is not None:
            raise delivery_error(deliveries.first_error, request=self._asks(on_topic(topic, "Write")))
        if deliveries.waiting or deliveries.offsets()[0] < 0:
            raise FatalProducerError(f"{self._name}: send: not every row is known to be written, after {timeout_s} s")
        return deliveries.offsets()[0]

    def send_offsets(self, consumed: Consumed, timeout_s: float) -> bool:
        began = self._clock()
        ids = consumed.topic_ids
        offsets = [
            TopicPartition(*part, offset, metadata_of(ids.get(part, ""))) for part, offset in consumed.offsets.items()
        ]
        group = self._groups.get(consumed.group)
        if group is None:
            group = self._groups[consumed.group] = group_without_members(self._settings, consumed.group)
        limit_s = max(0.001, timeout_s)

        def commit() -> None:
            self._call(
                "commit offsets",
                lambda producer: producer.send_offsets_to_transaction(offsets, group, limit_s),
                on_group(consumed.group, "Read"),
                *(on_topic(topic, "Read") for topic in sorted({topic for topic, _ in consumed.offsets})),
            )

        try:
            call_within(limit_s + _ENDS_LATE_S, commit)
        except DeadlineError as error:
            # The call keeps its producer: some threads and connections, for good. That is once for each broker that
            # dies as the group's coordinator; whoever ended the producer would be held up as the call is.
            self.close()
            raise FatalProducerError(f"{self._name}: commit offsets: {error}") from error
        return self._was_one_request("commit offsets", began)

    def commit_transaction(self, timeout_s: float) -> bool:
        began = self._clock()
        try:
            self._call("commit transaction", lambda producer: producer.commit_transaction(timeout_s))
        except RetriableProducerError as error:
            # librdkafka would go on with the same EndTxn; what it did is unknown, and the instance not to be trusted.
            raise FatalProducerError(str(error)) from error
        return self._was_one_request("commit transaction", began)

    def _was_one_request(self, call: str, began: float) -> bool:
        """Whether no copy of the request may still arrive."""
        took_s = self._clock() - began
        self._times.took(call, took_s)
        return took_s < self._repeated_after_s

    def abort_transaction(self, timeout_s: float) -> None:
        try:
            self._call("abort transaction", lambda producer: producer.abort_transaction(timeout_s))
        except RetriableProducerError as error:
            raise FatalProducerError(str(error)) from error

    def close(self) -> None:
        self._instance.discard()

    def _asks(self, *needs: Need) -> Request:
        return self._settings.access.asks(
            on_transactional_id(self._name, "Write"), on_cluster("IdempotentWrite"), *needs
        )

    def _call(self, doing: str, call: Callable[[Producer], T], *needs: Need) -> T:
        what = f"{self._name}: {doing}"
        try:
            return with_lost_errors(lambda: call(self._instance.producer))
        except KafkaException as error:
            topic = self._instance.failed_topic
            asks = self._asks(*needs, *([on_topic(topic, "Write")] if topic else []))
            raise producer_error(what, error_of(error), topic, asks) from error
        except LostError as error:
            # Asked again, a dead instance says what it died of.
            raise self._cause_of_death(what) from error

    def _cause_of_death(self, what: str) -> FatalProducerError:
        try:
            self._instance.producer.begin_transaction()
        except KafkaException as error:
            sorted_error = producer_error(what, error_of(error), request=self._asks())
            if isinstance(sorted_error, FatalProducerError):
                return sorted_error
        return FatalProducerError(f"{what}: fatal")


def group_without_members(settings: ClientSettings, group: str) -> object:
    """The metadata of a consumer that never joins its group: they name nobody, so that nobody can fence by them."""
    try:
        consumer = Consumer(settings.reader(group, committed=True, wait_ms=READ_MS))
    except KafkaException as error:
        raise config_error(error) from error
    return consumer.consumer_group_metadata()


class KafkaPlainProducer:
    """`ports.PlainProducer`."""

    def __init__(self, settings: ClientSettings, clock: Clock = time.monotonic) -> None:
        self._instance = _Instance(settings, settings.plain(), clock)
        self._access = settings.access
        self._clock = clock

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        return self._instance.know(topics, timeout_s)

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        deadline = self._clock() + timeout_s
        self._instance.connect(timeout_s)
        try:
            deliveries = with_lost_errors(lambda: self._instance.deliver(records, deadline))
        except KafkaException as error:
            raise operating_error("produce", error_of(error), self._asks(self._instance.failed_topic)) from error
        except LostError as error:
            raise KafkaRefusedError("produce: the producer died of an error that is lost") from error
        if deliveries.first_error is not None:
            raise operating_error("produce", deliveries.first_error, self._asks(deliveries.failed_topic))
        if deliveries.waiting:
            self._instance.producer.purge()
            reason = f"produce: not every record had its delivery report within {timeout_s} s"
            raise KafkaUnavailableError(reason) if self._instance.events.brokers_down else DeadlineError(reason)
        self._instance.events.brokers_down = False
        return deliveries.offsets()

    def close(self) -> None:
        self._instance.discard()

    def _asks(self, topic: str) -> Request:
        return self._access.asks(on_cluster("IdempotentWrite"), on_topic(topic, "Write"))
