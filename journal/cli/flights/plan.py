"""The plan of the demo: steps of operations on flights, in order of time. This module is pure.

A flight is a message to its airport's address. It is sent a day before it is due, to its airline's durable subscription
there. When it departs its plane acquires it, and acknowledges it when it lands; a flight that is not known to have
landed stays with its plane. Each hour is one step: a transaction of what was sent and acknowledged, which also stores
the step's number as the progress, so that the next node knows from the load alone where to carry on. (Acquisitions are
in no transaction: those of the step after the last one may exist or not.) When a day is over, its cancelled flights are
acknowledged in a transaction of their own. This is another step, and on some days it is only prepared, and settled when
the year is over. A step that is only prepared stores no progress: the load shows its transaction, and this shows that
the step is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from journal.cli.flights.data import DAY_MINUTES, Flight
from journal.store.operations.declare import virtual_shard_of
from journal.wire.ids import make_id, sequence_of

PUBLISHED_AHEAD_MINUTES = DAY_MINUTES
HOUR_MINUTES = 60

_SEQUENCES_ISSUED_MAX = 2**32
"""The ids of flights begin above all ids that the journal will issue."""


class Verb(Enum):
    SEND = "send"
    ACQUIRE = "acquire"
    ACKNOWLEDGE = "acknowledge"


class FlightOperation(NamedTuple):
    """An operation on a flight's message."""

    verb: Verb
    message_id: int
    queue: str
    """The queue's name, ADDRESS/AIRLINE."""
    plane: str = ""
    """The plane that acquires the message or has acquired it."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """The operations of one transaction, and acquisitions beside it. `number` counts from 1 and is the same in every
    run over the same flights.

    `cancelled_day` is the day whose cancellations these are, None for an hour's step. When the step is done, everything
    that is due before minute `until` has happened, and the cancellations of all days before `cancelled_before`.
    """

    number: int
    operations: list[FlightOperation]
    cancelled_day: int | None
    until: int
    cancelled_before: int


@dataclass(frozen=True, slots=True)
class DoubtRule:
    """The days whose cancellations are prepared and left in doubt, and how these are settled at the end."""

    every_days: int

    def in_doubt(self, day: int) -> bool:
        return day % self.every_days == 0

    def commits(self, day: int) -> bool:
        """Whether a day's transaction is committed; every other one is, and the rest is rolled back."""
        return day // self.every_days % 2 == 0

    @staticmethod
    def transaction(day: int) -> int:
        """The number of the transaction that acknowledges the cancelled flights of a day."""
        return day + 1

    def transaction_of(self, step: Step) -> int | None:
        """The number of the transaction that a step leaves in doubt; None for a step that is committed."""
        day = step.cancelled_day
        return self.transaction(day) if day is not None and self.in_doubt(day) else None

    @staticmethod
    def day(tx: int) -> int:
        return tx - 1


def doubt_rule(days: int) -> DoubtRule:
    """The rule for this many days: every tenth day, or every second if that gives too few."""
    return DoubtRule(10 if days >= 40 else 2)


def queue_of(flight: Flight) -> str:
    """The queue of a flight: its airline's subscription at its airport."""
    return f"{flight.airport}/{flight.airline}"


def is_of_flights(queue: str) -> bool:
    """Whether a queue belongs to the flights, and not to progress or corrections."""
    return "/" in queue


def message_id(flight: Flight) -> int:
    """The id of a flight's message: its line in the file, in the virtual shard of its airport's address."""
    return make_id(_SEQUENCES_ISSUED_MAX + flight.line, virtual_shard_of(flight.airport))


def line_of(message: int) -> int:
    """The line of the flight that a message stands for."""
    return sequence_of(message) - _SEQUENCES_ISSUED_MAX


def operations_of(flight: Flight) -> int:
    """Number of operations on a flight in the end: published, departed, landed; or published, cancelled."""
    return 3 if flight.landed is not None else 2


def steps(flights: Iterable[Flight]) -> Iterator[Step]:
    """All steps for flights that are ordered by schedule. This holds the flights of a day or two in memory."""
    cancelled_before = 0
    for number, (until, operations, day) in enumerate(_batches(flights), start=1):
        if day is not None:
            cancelled_before = day + 1
        yield Step(number, operations, day, until, cancelled_before)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where to carry on: the last step that is done, the number of operations until then, and the steps that
    are left."""

    last: Step | None
    operations: int
    left: Iterator[Step]
    underway: Mapping[int, str]
    """Messages that the next step acquires, each with its plane, which may have the message already."""


def resume(planned: Iterator[Step], rule: DoubtRule, progress: int, prepared: Collection[int]) -> Resumed:
    """Where to carry on, from what a load told: the step in the progress (0: none yet) and the prepared
    transactions."""
    last: Step | None = None
    operations = 0
    for step in planned:
        if step.number > progress and rule.transaction_of(step) not in prepared:
            underway = {each.message_id: each.plane for each in step.operations if each.verb is Verb.ACQUIRE}
            return Resumed(last, operations, chain([step], planned), underway)
        last = step
        operations += len(step.operations)
    return Resumed(last, operations, planned, {})


class _Event(NamedTuple):
    """Something that is due at a minute. `rank` orders what is due for a flight in the same minute."""

    minute: int
    rank: int
    line: int
    operation: FlightOperation


def _batches(flights: Iterable[Flight]) -> Iterator[tuple[int, list[FlightOperation], int | None]]:
    """Batches in order of time, without empty ones. Each has the end of its hour, its operations, and the day if the
    operations are the cancellations of one day."""
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
    """The cancellations of the days that are over at `minute`."""
    for day in sorted(day for day in cancelled if (day + 1) * DAY_MINUTES <= minute):
        yield minute, cancelled.pop(day), day


def _events(flights: Iterable[Flight], cancelled: dict[int, list[FlightOperation]]) -> Iterator[_Event]:
    """The events of the plan, in order of time. Cancelled flights are put into `cancelled` under their day instead."""
    due: list[_Event] = []
    for flight in flights:
        published = flight.scheduled - PUBLISHED_AHEAD_MINUTES
        while due and due[0].minute < published:
            yield heapq.heappop(due)
        message, queue = message_id(flight), queue_of(flight)
        sent = FlightOperation(Verb.SEND, message, queue, body=flight.schedule.encode())
        heapq.heappush(due, _Event(published, 0, flight.line, sent))
        if flight.departed is None:
            cancelled.setdefault(flight.day, []).append(FlightOperation(Verb.ACKNOWLEDGE, message, queue))
            continue
        acquired = FlightOperation(Verb.ACQUIRE, message, queue, flight.plane)
        heapq.heappush(due, _Event(flight.departed, 1, flight.line, acquired))
        if flight.landed is not None:
            landed = FlightOperation(Verb.ACKNOWLEDGE, message, queue, flight.plane)
            heapq.heappush(due, _Event(flight.landed, 2, flight.line, landed))
    while due:
        yield heapq.heappop(due)
