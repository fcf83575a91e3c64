"""Simulated producers, shaped after what librdkafka (2.16) does against Kafka 4.3.

The same conformance cases run against both. A fenced instance learns it at its next request, always as fatal;
CONCURRENT is asked again, after 20 ms to begin, a backoff to end and half a second to initialise; a time-out is
retriable for an init and fatal for anything else; a record that the broker refuses is fatal too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import TypeVar

from journal.errors import ClosedError, DeadlineError, InvalidOperationError, KafkaRefusedError, TopicError
from journal.kafka.client_settings import REPEATED_AFTER_S
from journal.kafka.ports import (
    FatalProducerError,
    RetriableProducerError,
    Sent,
)
from tests.simulation.broker import Answer
from tests.simulation.requests import BACKOFF_S, NoAnswer, Requests, once

T = TypeVar("T")

BEGIN_AGAIN_S = 0.02
INIT_AGAIN_S = 0.5


class Phase(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    DEAD = auto()
    CLOSED = auto()


class SimulatedTransactionalProducer:
    """`ports.TransactionalProducer`."""

    def __init__(
        self, requests: Requests, transactional_id: str, timeout_s: float, *, records_per_produce: int = 1_000_000
    ) -> None:
        self._requests = requests
        self._records_per_produce = records_per_produce
        self._broker = requests.broker
        self._now = requests.now
        self._id = transactional_id
        self._transaction_timeout_s = timeout_s
        self._epoch = -1
        self._phase = Phase.NEW

    def init(self, timeout_s: float) -> None:
        self._expect(Phase.NEW)
        deadline = self._now() + timeout_s
        while True:
            try:
                answer = self._requests.write(
                    "init", deadline - self._now(), lambda: self._broker.init_producer(self._id)
                )
            except NoAnswer as error:
                raise RetriableProducerError(str(error)) from error
            if not isinstance(answer, Answer):
                self._epoch, self._phase = answer, Phase.READY
                return
            if self._now() >= deadline:
                raise RetriableProducerError("init: still settling what was open")
            self._requests.pause(min(INIT_AGAIN_S, deadline - self._now()))

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        if not records:
            raise InvalidOperationError("a transaction needs at least one record")
        self._expect(Phase.READY)
        self._phase = Phase.OPEN
        deadline = self._now() + timeout_s
        offsets = [-1] * len(records)
        groups = by_partition(records)
        self._add_partitions(list(groups), deadline)
        refused: Answer | None = None
        for (topic, partition), indexes in groups.items():
            for first in range(0, len(indexes), self._records_per_produce):
                batch = indexes[first : first + self._records_per_produce]
                rows = [(records[i].key, records[i].value) for i in batch]
                effect = once(partial(self._broker.produce, self._id, self._epoch, topic, partition, rows))
                answer = self._request("produce", deadline, effect)
                if isinstance(answer, Answer):
                    refused = refused or answer
                    break
                for index, offset in zip(batch, answer, strict=True):
                    offsets[index] = offset
        if refused is not None:
            raise self._died_of("send", refused)
        return offsets

    def commit_transaction(self, timeout_s: float) -> bool:
        began = self._now()
        self._end(began + timeout_s, commit=True)
        return self._now() - began < REPEATED_AFTER_S

    def abort_transaction(self, timeout_s: float) -> None:
        self._end(self._now() + timeout_s, commit=False)

    def close(self) -> None:
        self._phase = Phase.CLOSED

    def _add_partitions(self, partitions: list[tuple[str, int]], deadline: float) -> None:
        allowed_s = self._transaction_timeout_s
        while True:
            answer = self._request(
                "add_partitions",
                deadline,
                lambda: self._broker.add_partitions(self._id, self._epoch, partitions, allowed_s),
            )
            if answer is None:
                return
            if answer is not Answer.CONCURRENT:
                raise self._died_of("send", answer)
            if self._now() >= deadline:
                raise self._die("send: the transaction before is still being ended")
            self._requests.pause(BEGIN_AGAIN_S)

    def _end(self, deadline: float, *, commit: bool) -> None:
        self._expect(Phase.OPEN)
        while True:
            answer = self._request(
                "end_transaction",
                deadline,
                lambda: self._broker.end_transaction(self._id, self._epoch, commit=commit),
            )
            if answer is None:
                self._phase = Phase.READY
                return
            if answer is not Answer.CONCURRENT:
                raise self._died_of("end of transaction", answer)
            if self._now() >= deadline:
                raise self._die("end of transaction: time-out")
            self._requests.pause(BACKOFF_S)

    def _request(self, request: str, deadline: float, effect: Callable[[], T]) -> T:
        try:
            return self._requests.write(request, max(0.0, deadline - self._now()), effect)
        except NoAnswer as error:
            raise self._die(str(error)) from error

    def _died_of(self, call: str, answer: Answer) -> FatalProducerError:
        return self._die(f"{call}: {answer.name}", fenced=answer is Answer.FENCED)

    def _die(self, reason: str, *, fenced: bool = False) -> FatalProducerError:
        self._phase = Phase.DEAD
        return FatalProducerError(f"{self._id}: {reason}", fenced=fenced)

    def _expect(self, phase: Phase) -> None:
        if self._phase is Phase.CLOSED:
            raise ClosedError("this producer is closed")
        if self._phase is not phase:
            raise FatalProducerError(f"{self._id}: not allowed in phase {self._phase.name}")


class SimulatedPlainProducer:
    """`ports.PlainProducer`."""

    def __init__(self, requests: Requests) -> None:
        self._requests: Requests | None = requests

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        requests = self._requests
        if requests is None:
            raise ClosedError("this producer is closed")
        offsets = [-1] * len(records)
        for (topic, partition), indexes in by_partition(records).items():
            rows = [(records[i].key, records[i].value) for i in indexes]
            effect = once(partial(requests.broker.write, topic, partition, rows))
            try:
                answer = requests.write("plain_produce", timeout_s, effect)
            except NoAnswer as error:
                raise DeadlineError(str(error)) from error
            if answer is Answer.UNKNOWN_TOPIC:
                raise TopicError(f"produce: {topic}[{partition}] is not there")
            if isinstance(answer, Answer):
                raise KafkaRefusedError(f"produce: {answer.name}")
            for index, offset in zip(indexes, answer, strict=True):
                offsets[index] = offset
        return offsets

    def close(self) -> None:
        self._requests = None


def by_partition(records: Sequence[Sent]) -> dict[tuple[str, int], list[int]]:
    """Indexes of the records of each partition, in order."""
    found: dict[tuple[str, int], list[int]] = {}
    for index, record in enumerate(records):
        found.setdefault((record.topic, record.partition), []).append(index)
    return found
