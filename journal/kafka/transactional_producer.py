"""The transactional producer with confluent-kafka.

Facts of librdkafka (2.16) against Kafka 4 that shaped this file:

- A fenced instance learns it at its next request, from AddPartitionsToTxn, Produce or EndTxn alike, and always as fatal
  _FENCED. A coordinator's time-out looks the same: it raises the epoch, and no instance has the raised epoch.
- The first init, or plain send, of a new instance takes half a second, that of a connected one 4 ms. So instances
  connect first. An init that settles an open transaction meets CONCURRENT_TRANSACTIONS and takes half a second all the
  same; if it is given up after a tenth of a second, the next instance's init finds the transaction settled
  (`journal.wal.fencing`).
- `send_offsets_to_transaction` never returns, whatever its time-out, when the broker that coordinates the group leaves
  the cluster while a request waits for it, even if that broker comes back. So it runs in a thread that can be left
  behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from journal.errors import DeadlineError, FatalProducerError, InvalidOperationError, RetriableProducerError
from journal.kafka.access import Need, Request, on_cluster, on_group, on_topic, on_transactional_id
from journal.kafka.bounded_calls import call_within
from journal.kafka.commit_times import CommitTimes
from journal.kafka.errors import delivery_error, error_of, producer_error
from journal.kafka.groups import metadata_of
from journal.kafka.lost_errors import LostError, with_lost_errors
from journal.kafka.ports import READ_MS, Consumed, Sent, nothing
from journal.kafka.producer_instance import ProducerInstance
from journal.kafka.settings import ClientSettings, config_error, repeated_after_s
from journal.process.clocks import Clock

T = TypeVar("T")

_ENDS_LATE_S = 1.0
"""librdkafka ends a call at its own time-out. A call that has not ended this long after it never will."""


class KafkaTransactionalProducer:
    """A `ports.TransactionalProducer`: one instance of one transactional id."""

    def __init__(
        self, settings: ClientSettings, transactional_id: str, times: CommitTimes, clock: Clock = time.monotonic
    ) -> None:
        """`times` are the commit times of earlier producers of this id; this one adds its own."""
        backoff_ms = times.backoff_ms
        self._instance = ProducerInstance(settings, settings.transactional(transactional_id, backoff_ms), clock)
        self._times = times
        self._repeated_after_s = repeated_after_s(backoff_ms)
        self._settings = settings
        self._clock = clock
        self._name = transactional_id
        self._groups: dict[str, object] = {}
        """Metadata that librdkafka requires of a group to commit its offsets, by group."""

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
        """Hot path: a row costs 0.9 microseconds, and 1.5 with a delivery report of its own."""
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
            # The call keeps its producer, with some threads and connections, until the process ends. This happens once
            # for each coordinator of the group that dies. Ending the producer would block as the call does.
            self.close()
            raise FatalProducerError(f"{self._name}: commit offsets: {error}") from error
        return self._was_one_request("commit offsets", began)

    def commit_transaction(self, timeout_s: float) -> bool:
        began = self._clock()
        try:
            self._call("commit transaction", lambda producer: producer.commit_transaction(timeout_s))
        except RetriableProducerError as error:
            # librdkafka would send the same EndTxn again. Its outcome is unknown, so this instance must not go on.
            raise FatalProducerError(str(error)) from error
        return self._was_one_request("commit transaction", began)

    def _was_one_request(self, call: str, began: float) -> bool:
        """Whether the call that started at `began` made one request only, so that no copy of it can still arrive."""
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
            # when a dead instance is called again, it raises the error that killed it
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
    """Group metadata of a consumer that never joins its group. They name no member, so no member can be fenced by
    them."""
    try:
        consumer = Consumer(settings.reader(group, committed=True, wait_ms=READ_MS))
    except KafkaException as error:
        raise config_error(error) from error
    return consumer.consumer_group_metadata()
