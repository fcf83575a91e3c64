"""Simulated producers, shaped after what librdkafka (2.16) does against Kafka 4.

The same conformance cases run against both. A fenced instance learns it at its next request, always as fatal;
CONCURRENT is asked again, after 20 ms to begin, a backoff to end and half a second to initialise; a time-out is
retriable for an init and fatal for anything else; a record that the broker refuses is fatal too. Records are taken one
by one, and a partition's Produce request goes out as soon as it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from itertools import chain
from typing import TypeVar

from journal.errors import (
    AbortableProducerError,
    ClosedError,
    DeadlineError,
    FatalProducerError,
    InvalidOperationError,
    KafkaRefusedError,
    RetriableProducerError,
    TopicError,
)
from journal.kafka.ports import Consumed, Sent, nothing
from journal.kafka.settings import RETRY_BACKOFF_MS, repeated_after_s
from tests.simulation.broker import OFFSETS, Answer, Instance
from tests.simulation.requests import BACKOFF_S, NoAnswer, Requests, TransactionRefused, once

T = TypeVar("T")

Partition = tuple[str, int]
Row = tuple[bytes | None, bytes | None]

REPEATED_AFTER_S = repeated_after_s(RETRY_BACKOFF_MS)
BEGIN_AGAIN_S = 0.02
INIT_AGAIN_S = 0.5

_ASK_AGAIN = (Answer.CONCURRENT, Answer.NO_COORDINATOR)
"""What the library repeats a request for, within its time."""


class Phase(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    REFUSED = auto()
    """Open, and to be aborted."""
    DEAD = auto()
    CLOSED = auto()


class Sending:
    """Records on their way: a batch a partition, and what has been answered."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        """By the order of the records; -1 until the broker has said it."""
        self.batches: dict[Partition, list[tuple[int, Row]]] = {}
        """Every partition that was seen, with the places and rows that wait for a request."""
        self.refused: dict[Partition, Answer] = {}

    def take(self, record: Sent) -> list[tuple[int, Row]]:
        """Put a record into its partition's batch, which is returned."""
        batch = self.batches.setdefault((record.topic, record.partition), [])
        batch.append((len(self.offsets), (record.key, record.value)))
        self.offsets.append(-1)
        return batch

    def rows(self, partition: Partition) -> list[Row]:
        """What the partition's next request has; nothing after one was refused."""
        return [] if partition in self.refused else [row for _, row in self.batches[partition]]

    def answered(self, partition: Partition, answer: list[int] | Answer) -> None:
        """Note the answer to a request with all of `rows`."""
        if isinstance(answer, Answer):
            self.refused[partition] = answer
            return
        for (place, _), offset in zip(self.batches[partition], answer, strict=True):
            self.offsets[place] = offset
        self.batches[partition].clear()


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
        self._instance = Instance(-1, -1)
        self._sequences: dict[Partition, int] = {}
        """How many records this instance has sent to each partition."""
        self._phase = Phase.NEW
        self._begun = False
        """Whether the coordinator knows of the open transaction."""

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        """No request of it changes anything."""
        return self._phase is not Phase.CLOSED

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
                self._instance, self._phase = answer, Phase.READY
                return
            if self._now() >= deadline:
                raise RetriableProducerError("init: still settling what was open")
            self._requests.pause(min(INIT_AGAIN_S, deadline - self._now()))

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        remaining = iter(records)
        first = next(remaining, None)
        if first is None:
            raise InvalidOperationError("a transaction needs at least one record")
        self._expect(Phase.READY)
        self._phase, self._begun = Phase.OPEN, False
        deadline = self._now() + timeout_s
        sending = Sending()
        added: set[Partition] = set()
        for record in chain((first,), remaining):
            self._requests.step("enqueue")
            batch = sending.take(record)
            if len(batch) == self._records_per_produce:
                self._produce(sending, (record.topic, record.partition), added, deadline)
        for partition in list(sending.batches):
            self._produce(sending, partition, added, deadline)
        if sending.refused:
            (topic, _), answer = next(iter(sending.refused.items()))
            died = self._died_of("send", answer)
            died.refused_topic = topic if answer is Answer.TOO_LARGE else ""
            raise died
        return sending.offsets

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
        sent = [Sent(topic, partition, key, value) for key, value in rows]
        records = chain(sent[:-1], beside, _calling(meanwhile), sent[-1:])
        try:
            return self.send(records, timeout_s)[-1]
        except FatalProducerError as error:
            error.refused_topic = ""  # nobody is told of what becomes of each
            raise

    def _produce(self, sending: Sending, partition: Partition, added: set[Partition], deadline: float) -> None:
        """One Produce request, after the coordinator has all partitions that are known to be in the transaction."""
        new = [other for other in sending.batches if other not in added]
        if new:
            self._add_partitions(new, deadline)
            added.update(new)
        rows = sending.rows(partition)
        if rows:
            sequence = self._sequences.get(partition, 0)
            effect = once(partial(self._broker.produce, self._id, self._instance, *partition, rows, sequence))
            answer = self._request("produce", deadline, effect, to=partition, size=size_of(rows))
            sending.answered(partition, answer)
            self._sequences[partition] = sequence + len(rows)

    def send_offsets(self, consumed: Consumed, timeout_s: float) -> bool:
        began = self._now()
        self._expect(Phase.OPEN)
        self._broker.create_topic(OFFSETS[0], 1, 1, {})
        self._add_partitions([OFFSETS], began + timeout_s)
        answer = self._request(
            "commit_offsets",
            began + timeout_s,
            lambda: self._broker.commit_offsets(self._id, self._instance, consumed.group, consumed.offsets),
        )
        if answer is not None:
            raise self._died_of("commit offsets", answer)
        return self._now() - began < REPEATED_AFTER_S

    def commit_transaction(self, timeout_s: float) -> bool:
        began = self._now()
        self._end(began + timeout_s, commit=True)
        return self._now() - began < REPEATED_AFTER_S

    def abort_transaction(self, timeout_s: float) -> None:
        if self._phase is Phase.REFUSED:
            self._phase = Phase.OPEN if self._begun else Phase.READY
            if not self._begun:
                return
        self._end(self._now() + timeout_s, commit=False)

    def close(self) -> None:
        self._phase = Phase.CLOSED

    def _add_partitions(self, partitions: list[tuple[str, int]], deadline: float) -> None:
        allowed_s = self._transaction_timeout_s
        while True:
            answer = self._request(
                "add_partitions",
                deadline,
                lambda: self._broker.add_partitions(self._id, self._instance, partitions, allowed_s),
            )
            if answer is None:
                self._begun = True
                return
            if answer not in _ASK_AGAIN:
                raise self._died_of("send", answer)
            if self._now() >= deadline:
                raise self._die(f"send: {answer.name}")
            self._requests.pause(BEGIN_AGAIN_S)

    def _end(self, deadline: float, *, commit: bool) -> None:
        self._expect(Phase.OPEN)
        while True:
            answer = self._request(
                "end_transaction",
                deadline,
                lambda: self._broker.end_transaction(self._id, self._instance, commit=commit),
            )
            if answer is None:
                self._phase = Phase.READY
                return
            if answer not in _ASK_AGAIN:
                raise self._died_of("end of transaction", answer)
            if self._now() >= deadline:
                raise self._die(f"end of transaction: {answer.name}")
            self._requests.pause(BACKOFF_S)

    def _request(
        self,
        request: str,
        deadline: float,
        effect: Callable[[], T],
        *,
        to: Partition | None = None,
        size: int = 0,
    ) -> T:
        try:
            return self._requests.write(request, max(0.0, deadline - self._now()), effect, to=to, size=size)
        except NoAnswer as error:
            raise self._die(str(error)) from error
        except TransactionRefused as error:
            self._phase = Phase.REFUSED
            raise AbortableProducerError(f"{self._id}: {error}: this transaction must be aborted") from error

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

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        return self._requests is not None

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        requests = self._requests
        if requests is None:
            raise ClosedError("this producer is closed")
        sending = Sending()
        for record in records:
            sending.take(record)
        for topic, partition in list(sending.batches):
            effect = once(partial(requests.broker.write, topic, partition, sending.rows((topic, partition))))
            try:
                answer = requests.write("plain_produce", timeout_s, effect, to=(topic, partition))
            except NoAnswer as error:
                raise DeadlineError(str(error)) from error
            if answer is Answer.UNKNOWN_TOPIC:
                raise TopicError(f"produce: {topic}[{partition}] is not there")
            if isinstance(answer, Answer):
                raise KafkaRefusedError(f"produce: {answer.name}")
            sending.answered((topic, partition), answer)
        return sending.offsets

    def close(self) -> None:
        self._requests = None


def size_of(rows: Sequence[Row]) -> int:
    """Bytes of keys and values."""
    return sum(len(key or b"") + len(value or b"") for key, value in rows)


def _calling(function: Callable[[], object]) -> Iterator[Sent]:
    """No records: `function` is called where they would be taken."""
    function()
    yield from ()
