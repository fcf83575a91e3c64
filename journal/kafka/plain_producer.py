"""The plain producer with confluent-kafka: acknowledged writes outside of transactions."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import KafkaException

from journal.errors import DeadlineError, KafkaRefusedError, KafkaUnavailableError
from journal.kafka.access import Request, on_cluster, on_topic
from journal.kafka.errors import error_of, operating_error
from journal.kafka.lost_errors import LostError, with_lost_errors
from journal.kafka.ports import Sent
from journal.kafka.producer_instance import ProducerInstance
from journal.kafka.settings import ClientSettings
from journal.process.clocks import Clock


class KafkaPlainProducer:
    """A `ports.PlainProducer`. It connects before it first sends, because a new instance would otherwise need half a
    second for its first send."""

    def __init__(self, settings: ClientSettings, clock: Clock = time.monotonic) -> None:
        self._instance = ProducerInstance(settings, settings.plain(), clock)
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
            raise KafkaRefusedError("produce: the producer failed, and confluent-kafka lost the error") from error
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
