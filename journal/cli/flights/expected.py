"""The expected contents of the queues, computed from the flights without any operation, and their comparison with a
load. This module is pure.

It shares with the plan only a flight's message id and queue, and which days are left in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from journal.cli.flights.data import Flight, flight_of, read_rows, scheduled_minute
from journal.cli.flights.plan import (
    PUBLISHED_AHEAD_MINUTES,
    DoubtRule,
    is_of_flights,
    line_of,
    message_id,
    queue_of,
)
from journal.store.model import ReferenceInfo, ReferenceState

PROGRESS = "progress"
"""The address and queue of the progress. The body of its last message is the number of the last step, as text."""

CORRECTIONS = "corrections"
"""The address and queue of the corrections that the active node takes in."""

DIFFERENCES_MAX = 20
"""Number of differences that are named; all are counted."""


class FlightPlace(NamedTuple):
    """A flight in its queue: its state, the plane that has it, and its body."""

    message: int
    state: ReferenceState
    plane: str
    body: bytes


@dataclass(slots=True)
class Contents:
    """The queues, each in delivery order, and the messages that each prepared transaction would acknowledge."""

    queues: dict[str, list[FlightPlace]] = field(default_factory=dict)
    prepared: dict[int, set[int]] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return sum(map(len, self.queues.values()))


def contents_of(
    queues: Iterable[str],
    prepared: Mapping[int, set[int]],
    browse: Callable[[str], Iterable[ReferenceInfo]],
    body: Callable[[int], bytes],
) -> Contents:
    """The contents of the flights' queues in a store."""
    found = Contents(prepared=dict(prepared))
    for queue in queues:
        if is_of_flights(queue):
            places = [FlightPlace(info.message, info.state, info.holder, body(info.message)) for info in browse(queue)]
            if places:
                found.queues[queue] = places
    return found


def state_when(flights: Iterable[Flight], rule: DoubtRule, until: int, cancelled_before: int) -> Contents:
    """The contents once everything that is due before minute `until` has happened, and the cancellations of days before
    `cancelled_before`; nothing in doubt is settled. `flights` are ordered by schedule."""
    contents = Contents()
    for flight in flights:
        if flight.scheduled - PUBLISHED_AHEAD_MINUTES >= until:
            continue
        if flight.landed is not None and flight.landed < until:
            continue
        state = ReferenceState.READY
        if flight.departed is not None and flight.departed < until:
            state = ReferenceState.HELD
        if flight.cancelled and flight.day < cancelled_before:
            if not rule.in_doubt(flight.day):
                continue
            contents.prepared.setdefault(rule.transaction(flight.day), set()).add(message_id(flight))
            state = ReferenceState.LOCKED
        contents.queues.setdefault(queue_of(flight), []).append(_place(flight, state))
    return contents


def final_state(archive: Path, rows: int | None, rule: DoubtRule) -> Contents:
    """What the first `rows` departures of the year leave behind: flights that are not known to have landed, and those
    whose cancellation was rolled back."""
    last: tuple[int, int] | None = None
    if rows is not None:
        last = nsmallest(rows, ((scheduled_minute(fields), line) for line, fields in read_rows(archive)))[-1]
    left: list[Flight] = []
    for line, fields in read_rows(archive):
        flight = flight_of(line, fields)
        if last is not None and (flight.scheduled, line) > last:
            continue
        rolled_back = rule.in_doubt(flight.day) and not rule.commits(flight.day)
        if flight.landed is None and (not flight.cancelled or rolled_back):
            left.append(flight)
    contents = Contents()
    for flight in sorted(left, key=lambda flight: (flight.scheduled, flight.line)):
        state = ReferenceState.READY if flight.cancelled else ReferenceState.HELD
        contents.queues.setdefault(queue_of(flight), []).append(_place(flight, state))
    return contents


def _place(flight: Flight, state: ReferenceState) -> FlightPlace:
    plane = flight.plane if state is ReferenceState.HELD else ""
    return FlightPlace(message_id(flight), state, plane, flight.schedule.encode())


@dataclass(frozen=True, slots=True)
class QueueComparison:
    """How the loaded contents of the queues compare with the expected ones. `different` is the number of differences,
    and `differences` describes the first few."""

    expected_messages: int
    loaded_messages: int
    queues: int
    held: int
    """Number of loaded messages that a plane holds."""
    expected_prepared: int
    loaded_prepared: int
    different: int
    differences: list[str]


def compare(expected: Contents, loaded: Contents, underway: Mapping[int, str] | None = None) -> QueueComparison:
    """Compare every queue in order, with its messages' states, planes and bodies, and every prepared transaction.

    Messages that are `underway` may already be held by their plane.
    """
    found: list[str] = []
    names = sorted(expected.queues.keys() | loaded.queues.keys())
    for queue in names:
        places = [_not_yet(place, underway or {}) for place in loaded.queues.get(queue, [])]
        found += _differences(queue, expected.queues.get(queue, []), places)
    for tx in sorted(expected.prepared.keys() | loaded.prepared.keys()):
        if expected.prepared.get(tx) != loaded.prepared.get(tx):
            found.append(f"transaction {tx}: expected {expected.prepared.get(tx)}, loaded {loaded.prepared.get(tx)}")
    return QueueComparison(
        expected_messages=expected.messages,
        loaded_messages=loaded.messages,
        queues=len(names),
        held=sum(place.state is ReferenceState.HELD for places in loaded.queues.values() for place in places),
        expected_prepared=len(expected.prepared),
        loaded_prepared=len(loaded.prepared),
        different=len(found),
        differences=found[:DIFFERENCES_MAX],
    )


def _not_yet(place: FlightPlace, underway: Mapping[int, str]) -> FlightPlace:
    if place.state is ReferenceState.HELD and underway.get(place.message) == place.plane:
        return place._replace(state=ReferenceState.READY, plane="")
    return place


def _differences(queue: str, expected: list[FlightPlace], loaded: list[FlightPlace]) -> Iterator[str]:
    if expected == loaded:
        return
    wanted, got = {place.message: place for place in expected}, {place.message: place for place in loaded}
    for each in sorted(wanted.keys() | got.keys()):
        if wanted.get(each) != got.get(each):
            what = f"expected {wanted.get(each)}, loaded {got.get(each)}"
            yield f"flight of line {line_of(each)} (message {each}) in {queue}: {what}"
    common = wanted.keys() & got.keys()
    if [each for each in wanted if each in common] != [each for each in got if each in common]:
        yield f"queue {queue}: its messages are not in the order of their schedule"
    if len(loaded) != len(got):
        yield f"queue {queue}: it has a message twice"
