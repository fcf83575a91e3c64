"""What happens to flights, as steps of operations in order of time. Pure.

A flight becomes a record a day before it is due, is updated when it departs and deleted when it lands; one that is not
known to have landed stays. Each hour is one step: a local transaction, which also moves the progress record on, so
that whoever carries on knows from the load alone where. When a day is over, its cancelled flights are deleted in a
transaction of their own: another step, and on some days one that is only prepared, and settled when the year is over.
A prepared step moves no progress (its lock on the progress record would stop every later step): that the load tells of
the transaction says that it is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from journal.cli.flights.data import DAY_MINUTES, Flight
from journal.wire.ids import make_id

FLIGHT = 1
"""Kind of a flight's record."""

DEPARTURE = 2
"""Kind of the update that a departure is."""

PROGRESS = 3
"""Kind of the progress record and of its replaceable update: the number of the last step, as text."""

PROGRESS_ID = 1
"""In no flight's way: their sequences begin at 1, so their ids at 1024."""

PUBLISHED_AHEAD_MINUTES = DAY_MINUTES
HOUR_MINUTES = 60


class Verb(Enum):
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


class FlightOperation(NamedTuple):
    """An operation on a flight's record."""

    verb: Verb
    record_id: int
    kind: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """Operations that are one transaction. `number` counts from 1 and is the same in every run over the same flights.

    `cancelled_day` is the day whose cancellations they are, None for an hour's. When it is done, everything has
    happened that is due before minute `until`, and the cancellations of all days before `cancelled_before`.
    """

    number: int
    operations: list[FlightOperation]
    cancelled_day: int | None
    until: int
    cancelled_before: int


@dataclass(frozen=True, slots=True)
class DoubtRule:
    """Which days' cancellations are prepared and left in doubt, and how they are settled in the end."""

    every_days: int

    def in_doubt(self, day: int) -> bool:
        return day % self.every_days == 0

    def commits(self, day: int) -> bool:
        """Every other one is committed, the rest is rolled back."""
        return day // self.every_days % 2 == 0

    @staticmethod
    def transaction(day: int) -> int:
        """The number of the transaction that deletes the cancelled flights of a day."""
        return day + 1

    def transaction_of(self, step: Step) -> int | None:
        """The number of the transaction that a step leaves in doubt, None for a step that is committed."""
        day = step.cancelled_day
        return self.transaction(day) if day is not None and self.in_doubt(day) else None

    @staticmethod
    def day(tx: int) -> int:
        return tx - 1


def doubt_rule(days: int) -> DoubtRule:
    """Every tenth day; where there are too few for that, every second."""
    return DoubtRule(10 if days >= 40 else 2)


def record_id(flight: Flight) -> int:
    """A flight's record: its line, in a virtual shard that all flights of that number and route share."""
    address = ",".join(flight.schedule.split(",")[3:])
    return make_id(flight.line, crc32(address.encode()))


def operations_of(flight: Flight) -> int:
    """How many operations a flight is in the end: added, departed, landed; or added, cancelled."""
    return 3 if flight.landed is not None else 2


def steps(flights: Iterable[Flight]) -> Iterator[Step]:
    """All steps over flights that come in order of schedule; holds the flights of a day or two."""
    cancelled_before = 0
    for number, (until, operations, day) in enumerate(_batches(flights), start=1):
        if day is not None:
            cancelled_before = day + 1
        yield Step(number, operations, day, until, cancelled_before)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where to carry on: the last step that is done, how many operations were, and the steps that are left."""

    last: Step | None
    operations: int
    left: Iterator[Step]


def resume(planned: Iterator[Step], rule: DoubtRule, progress: int, prepared: Collection[int]) -> Resumed:
    """From what a load told: the step of the progress record (0: none yet), and the prepared transactions."""
    last: Step | None = None
    operations = 0
    for step in planned:
        if step.number > progress and rule.transaction_of(step) not in prepared:
            return Resumed(last, operations, chain([step], planned))
        last = step
        operations += len(step.operations)
    return Resumed(last, operations, planned)


class _Event(NamedTuple):
    """Something due at a minute. `rank` orders what is due in the same minute of a flight: by what must come first."""

    minute: int
    rank: int
    line: int
    operation: FlightOperation


def _batches(flights: Iterable[Flight]) -> Iterator[tuple[int, list[FlightOperation], int | None]]:
    """End of the hour, operations, and the day if they are its cancellations; in order of time, none empty."""
    cancelled: dict[int, list[FlightOperation]] = {}
    hour: int | None = None
    batch: list[FlightOperation] = []
    for event in _events(flights, cancelled):
        due = event.minute // HOUR_MINUTES
        if hour is not None and due != hour:
            yield (hour + 1) * HOUR_MINUTES, batch, None
            batch = []
            yield from _days_over(cancelled, due * HOUR_MINUTES)
        hour = due
        batch.append(event.operation)
    if hour is not None:
        until = (hour + 1) * HOUR_MINUTES
        yield until, batch, None
        # the last day may have ended in cancellations alone
        last_day = max(cancelled, default=0)
        yield from _days_over(cancelled, max(until, (last_day + 1) * DAY_MINUTES))


def _days_over(
    cancelled: dict[int, list[FlightOperation]], minute: int
) -> Iterator[tuple[int, list[FlightOperation], int | None]]:
    """The cancellations of days that are over at `minute`."""
    for day in sorted(day for day in cancelled if (day + 1) * DAY_MINUTES <= minute):
        yield minute, cancelled.pop(day), day


def _events(flights: Iterable[Flight], cancelled: dict[int, list[FlightOperation]]) -> Iterator[_Event]:
    """What is due, in order of time; flights that are cancelled are put under their day in `cancelled` instead."""
    due: list[_Event] = []
    for flight in flights:
        published = flight.scheduled - PUBLISHED_AHEAD_MINUTES
        while due and due[0].minute < published:
            yield heapq.heappop(due)
        of_flight = record_id(flight)
        heapq.heappush(due, _Event(published, 0, flight.line, added(flight)))
        if flight.departed is None:
            cancelled.setdefault(flight.day, []).append(FlightOperation(Verb.DELETE, of_flight))
            continue
        departure = FlightOperation(Verb.UPDATE, of_flight, DEPARTURE, flight.departure.encode())
        heapq.heappush(due, _Event(flight.departed, 1, flight.line, departure))
        if flight.landed is not None:
            heapq.heappush(due, _Event(flight.landed, 2, flight.line, FlightOperation(Verb.DELETE, of_flight)))
    while due:
        yield heapq.heappop(due)


def added(flight: Flight) -> FlightOperation:
    """What publishing a flight appends."""
    return FlightOperation(Verb.ADD, record_id(flight), FLIGHT, flight.schedule.encode())
