"""One confluent-kafka producer, its callbacks, and the sending that transactional and plain producers share.

`Producer.close()` aborts the open transaction and flushes without limit. Dropping the last reference does neither and
takes less than a millisecond, even with an open transaction or a dead broker. So `discard` only drops the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from journal.errors import ClosedError
from journal.kafka.deliveries import Deliveries
from journal.kafka.ports import Sent
from journal.kafka.settings import ClientEvents, ClientSettings, config_error
from journal.process.clocks import Clock

_CONNECT_NUDGE_S = 0.001
_ROWS_PER_CALL = 5000
_SERVED_EVERY = 1000
"""Number of records after which delivery reports of earlier ones are served, so that their memory is reused while it is
still in the CPU's caches."""


class ProducerInstance:
    """One confluent-kafka producer with its callbacks. Raises ConfigError for properties that librdkafka refuses."""

    def __init__(self, settings: ClientSettings, config: dict[str, object], clock: Clock) -> None:
        self.events = ClientEvents(settings)
        self._clock = clock
        self._connected = False
        self.failed_topic = ""
        """Topic of the record that librdkafka itself refused; empty if it refused none."""
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
        """Wait until a broker has sent its metadata. If none does in time, nothing is raised: the next call will find
        it.

        A new instance's main thread looks for a broker to connect to immediately and then every second. In one case of
        four its first look comes before it knows any broker. A request with no time to wait makes it look again.
        """
        if self._connected:
            return
        deadline = self._clock() + timeout_s
        with suppress(KafkaException):
            self.producer.list_topics(timeout=_CONNECT_NUDGE_S)
        with suppress(KafkaException):
            self._connected = bool(self.producer.cluster_id(max(0.0, deadline - self._clock())))

    def know(self, topics: Sequence[str], timeout_s: float) -> bool:
        """Connect, and ask which brokers lead these topics; returns whether one answered. librdkafka keeps the
        answers."""
        deadline = self._clock() + timeout_s
        self.connect(timeout_s)
        try:
            for topic in topics:
                self.producer.list_topics(topic, max(0.001, deadline - self._clock()))
        except KafkaException:
            return False
        return self._connected

    def deliver(self, records: Iterable[Sent], deadline: float) -> Deliveries:
        """Produce records and wait for their delivery reports. At the deadline it returns even if some are still
        `waiting`.

        Hot path: one pass; the callback is looked up only when the partition changes.
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
                    # librdkafka's queue is full: reports of records in it make room.
                    if self._clock() >= deadline:
                        deliveries.produced += 1  # this record counts as waiting for ever, because it gets no report
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
        """Produce rows without delivery reports, in any order. Returns False if librdkafka's queue had no room in
        time."""
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
        """Produce records of any partitions, with headers and without delivery reports; each partition's keep their
        order. Returns False if librdkafka's queue had no room in time.

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
        """Throw the producer away, without waiting for anything."""
        self._producer = None


def _again(message: dict[str, object]) -> dict[str, object]:
    """A message to be produced again, which `produce_batch` refused because the queue was full. Raises KafkaException
    if it was refused for another reason."""
    error = message.pop("_error")
    if not isinstance(error, KafkaError) or error.code() != KafkaError._QUEUE_FULL:
        raise KafkaException(error)
    return message
