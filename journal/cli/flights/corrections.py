"""The demo's source: corrections of flights in a Kafka topic, which the active node takes in as messages.

They come in bursts as the year goes on, one of them just before the active node is killed. At the end their queue is
compared with what was produced: each record is one message, and those of one partition are in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from journal.cli.flights.data import Flight
from journal.cli.flights.expected import CORRECTIONS, DIFFERENCES_MAX
from journal.kafka.ports import PlainProducer, Sent
from journal.store.model import Message

PARTITIONS = 3
_EVERY_FLIGHTS = 50
_BURSTS = 20


def corrections_topic(journal: str) -> str:
    """The topic that corrections come from."""
    return f"{journal}-corrections"


def corrections_source(journal: str) -> dict[str, object]:
    """The source for the configuration."""
    return {"name": "corrections", "topics": [corrections_topic(journal)], "address": CORRECTIONS, "value": "text"}


class Correction(NamedTuple):
    """One record: the queue it goes to, and its content."""

    partition: int
    key: bytes
    value: bytes


def corrections_of(flights: Iterable[Flight]) -> list[Correction]:
    """The corrections of some flights: when they landed."""
    found: list[Correction] = []
    for number, flight in enumerate(flights):
        if flight.landed is not None and number % _EVERY_FLIGHTS == 0:
            line = b"%d" % flight.line
            found.append(Correction(flight.line % PARTITIONS, line, line + b",%d" % flight.landed))
    return found


class Corrector:
    """Produces corrections in bursts. One thread uses it."""

    def __init__(
        self, corrections: Sequence[Correction], topic: str, producer: PlainProducer, timeout_s: float
    ) -> None:
        self._corrections = corrections
        self._topic = topic
        self._producer = producer
        self._timeout_s = timeout_s
        self._done = 0

    def produce_until(self, done: int, total: int) -> None:
        """Produce the corrections that are due when `done` of `total` operations are done. Raises OperatingError."""
        due = len(self._corrections) * (done * _BURSTS // total) // _BURSTS
        records = [Sent(self._topic, *each) for each in self._corrections[self._done : due]]
        if records:
            self._producer.send(records, self._timeout_s)
            self._done = due

    def close(self) -> None:
        self._producer.close()


@dataclass(frozen=True, slots=True)
class Corrected:
    """The comparison of the queue of corrections with what was produced."""

    topic: str
    expected: int
    found: int
    twice: int
    """Records that became more than one message."""
    different: int
    differences: list[str]


def compare_corrections(topic: str, expected: Iterable[Correction], messages: Iterable[Message]) -> Corrected:
    """Compare `messages`, which are in the order of their queue, with what was produced. The first few differences are
    named, all are counted."""
    wanted: Mapping[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for correction in expected:
        wanted[correction.partition].append(correction.value)
    got: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    for message in messages:
        partition, offset = (message.properties[name] for name in ("kafka.partition", "kafka.offset"))
        got.setdefault(_number(partition), []).append((_number(offset), message.body))
    differences: list[str] = []
    for partition, places in got.items():
        values = [value for _, value in places]
        if [offset for offset, _ in places] != list(range(len(places))):
            differences.append(f"partition {partition}: its offsets are not each there once and in order")
        if values != wanted.get(partition, []):
            differences.append(
                f"partition {partition}: {len(wanted.get(partition, []))} records, {len(places)} messages"
            )
    return Corrected(
        topic=topic,
        expected=sum(map(len, wanted.values())),
        found=sum(map(len, got.values())),
        twice=sum(len(places) - len(set(places)) for places in got.values()),
        different=len(differences),
        differences=differences[:DIFFERENCES_MAX],
    )


def _number(value: object) -> int:
    """The number of the record that a message came from, as the source noted it."""
    assert isinstance(value, int)
    return value
