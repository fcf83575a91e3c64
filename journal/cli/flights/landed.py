"""The demo's route: flights that have landed, hour by hour, as messages that a route sends to a Kafka topic.

For each airport from which flights have landed within an hour, the hour's step adds a message in its own transaction;
the message's body has a line for each of these flights. An address lives in one shard and is the key of its records, so
a partition of the topic has an airport's flights in shard order. At the end the topic is compared with flights.csv.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from journal.cli.flights.data import Flight
from journal.cli.flights.expected import DIFFERENCES_MAX
from journal.cli.flights.plan import FlightOperation, Verb, line_of
from journal.kafka.ports import Kafka, LogRecord
from journal.topics.marks import records_between

_PREFIX = "landed."


def landed_topic(journal: str) -> str:
    """The topic that landed flights are sent to."""
    return f"{journal}-landed"


def landed_address(airport: str) -> str:
    """The name of the address, and of its queue, for landed flights that had left this airport."""
    return _PREFIX + airport


def is_landed(queue: str) -> bool:
    return queue.startswith(_PREFIX)


def landed_route(journal: str) -> dict[str, object]:
    """The configuration of the demo's route, which sends the messages of landed flights to a Kafka topic."""
    target = {"topic": landed_topic(journal), "key": "header:address", "value": "text"}
    return {"name": "landed", "address": _PREFIX + "*", "targets": [target]}


def landings_of(operations: Iterable[FlightOperation]) -> dict[str, bytes]:
    """The flights that have landed in a step: for each airport that they had left, the body of a message."""
    lines: dict[str, list[str]] = {}
    for verb, message, queue, plane, _ in operations:
        if verb is Verb.ACKNOWLEDGE and plane:  # a cancelled flight is not acknowledged by a plane
            lines.setdefault(queue.partition("/")[0], []).append(f"{line_of(message)},{queue},{plane}")
    return {airport: "\n".join(of_airport).encode() for airport, of_airport in lines.items()}


# ---- the contents of the topic
# -----------------------------------------------------------------------------------------


class Landing(NamedTuple):
    """A landed flight in the topic, or as it should be there."""

    line: int
    told: str


@dataclass(frozen=True, slots=True)
class RoutedFlights:
    """The comparison of the topic with the flights: each must be there once, and each airport's in the order of
    landing."""

    topic: str
    records: int
    expected: int
    found: int
    twice: int
    """Flights that are in the topic more than once."""
    different: int
    differences: list[str]


def expected_landings(flights: Iterable[Flight]) -> dict[str, list[Landing]]:
    """The flights that have landed, by airport and in the order in which they landed."""
    landed: dict[str, list[tuple[int, int, str]]] = {}
    for flight in flights:
        if flight.landed is not None:
            told = f"{flight.line},{flight.airport}/{flight.airline},{flight.plane}"
            landed.setdefault(flight.airport, []).append((flight.landed, flight.line, told))
    return {airport: [Landing(line, told) for _, line, told in sorted(each)] for airport, each in landed.items()}


def landings_in(records: Iterable[LogRecord]) -> dict[str, list[Landing]]:
    """The landings in records, by airport."""
    found: dict[str, list[Landing]] = {}
    for record in records:
        of_airport = found.setdefault((record.key or b"").decode().removeprefix(_PREFIX), [])
        for told in (record.value or b"").decode().split("\n"):
            of_airport.append(Landing(int(told.partition(",")[0]), told))
    return found


def compare_landings(
    topic: str, records: int, expected: Mapping[str, Sequence[Landing]], found: Mapping[str, Sequence[Landing]]
) -> RoutedFlights:
    """Compare the topic with the flights. The first few differences are named, all are counted."""
    differences: list[str] = []
    twice = 0
    for airport in sorted(expected.keys() | found.keys()):
        wanted, got = list(expected.get(airport, ())), list(found.get(airport, ()))
        there, should = Counter(got), Counter(wanted)
        twice += sum(count > 1 for count in there.values())
        differences += [f"{airport}: {each.told} is missing" for each in (should - there)]
        differences += [f"{airport}: {each.told} is there once more than it landed" for each in (there - should)]
        if wanted != got and there == should:
            differences.append(f"{airport}: its flights are not in the order in which they landed")
    return RoutedFlights(
        topic=topic,
        records=records,
        expected=sum(map(len, expected.values())),
        found=sum(map(len, found.values())),
        twice=twice,
        different=len(differences),
        differences=differences[:DIFFERENCES_MAX],
    )


def read_committed(kafka: Kafka, topic: str, partitions: int, timeout_s: float) -> list[LogRecord]:
    """All committed records of a topic, those of each partition in order. Raises DeadlineError."""
    reader = kafka.reader(topic)
    try:
        return [
            record
            for part, (start, end) in reader.bounds(range(partitions), timeout_s).items()
            for record in records_between(reader, part, start, end, clock=time.monotonic, stall_s=timeout_s, name=topic)
        ]
    finally:
        reader.close()
