"""What the journal must hold, computed straight from the flights without any operation, and what a load told. Pure.

Shares with the plan only how a flight is written down: its record's id, its bytes, and which days are left in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import NamedTuple

from journal.cli.flights.data import Flight, flight_of, read_rows, scheduled_minute
from journal.cli.flights.plan import (
    DEPARTURE,
    FLIGHT,
    PROGRESS,
    PROGRESS_ID,
    PUBLISHED_AHEAD_MINUTES,
    DoubtRule,
    record_id,
)
from journal.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import DELETE, Mark, Operation
from journal.wire.ids import sequence_of

DIFFERENCES_MAX = 20
"""How many are named; all are counted."""


class Content(NamedTuple):
    """A flight's record: kind, data, and its updates' kind and data in order."""

    kind: int
    data: bytes
    updates: tuple[tuple[int, bytes], ...]


@dataclass(slots=True)
class Contents:
    """Flights' records by id, and the records that each prepared transaction would delete."""

    records: dict[int, Content] = field(default_factory=dict)
    prepared: dict[int, set[int]] = field(default_factory=dict)


class FlightsLoader:
    """A loader that keeps what it is told: `contents`, and the last step of the progress record (0: there is none)."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.step = 0
        self.strange: list[str] = []

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        content = Content(kind, data, tuple((update.kind, update.data) for update in updates))
        if record_id != PROGRESS_ID:
            self.contents.records[record_id] = content
        elif len(updates) == 1 and (kind, data) == (PROGRESS, b"") and updates[0].kind == PROGRESS:
            self.step = int(updates[0].data)
        else:
            self.strange.append(f"the progress record is {content}")

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.contents.prepared[tx] = {op.id for op in operations}
        self.strange += [f"transaction {tx} does {op}" for op in operations if op.type != DELETE]

    def complete(self, counts: LoadCounts) -> None: ...


def state_when(flights: Iterable[Flight], rule: DoubtRule, until: int, cancelled_before: int) -> Contents:
    """The contents when all has happened that is due before minute `until`, and the cancellations of days before
    `cancelled_before`; nothing in doubt is settled."""
    contents = Contents()
    for flight in flights:
        if flight.scheduled - PUBLISHED_AHEAD_MINUTES >= until:
            continue
        if flight.landed is not None and flight.landed < until:
            continue
        if flight.cancelled and flight.day < cancelled_before:
            if not rule.in_doubt(flight.day):
                continue
            contents.prepared.setdefault(rule.transaction(flight.day), set()).add(record_id(flight))
        departed = flight.departed is not None and flight.departed < until
        contents.records[record_id(flight)] = _content(flight, departed=departed)
    return contents


def final_state(archive: Path, rows: int | None, rule: DoubtRule) -> Contents:
    """What the first `rows` departures of the year leave behind: flights not known to have landed, and those whose
    cancellation was rolled back."""
    last: tuple[int, int] | None = None
    if rows is not None:
        last = nsmallest(rows, ((scheduled_minute(fields), line) for line, fields in read_rows(archive)))[-1]
    contents = Contents()
    for line, fields in read_rows(archive):
        flight = flight_of(line, fields)
        if last is not None and (flight.scheduled, line) > last:
            continue
        rolled_back = rule.in_doubt(flight.day) and not rule.commits(flight.day)
        if flight.landed is None and (not flight.cancelled or rolled_back):
            contents.records[record_id(flight)] = _content(flight, departed=not flight.cancelled)
    return contents


def _content(flight: Flight, *, departed: bool) -> Content:
    updates = ((DEPARTURE, flight.departure.encode()),) if departed else ()
    return Content(FLIGHT, flight.schedule.encode(), updates)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two contents side by side; `differences` names the first few of `different`."""

    expected_records: int
    loaded_records: int
    expected_prepared: int
    loaded_prepared: int
    different: int
    differences: list[str]


def compare(expected: Contents, loaded: FlightsLoader) -> Comparison:
    """Every record and every prepared transaction of both."""
    found = list(loaded.strange)
    contents = loaded.contents
    for each in sorted(expected.records.keys() | contents.records.keys()):
        wanted, got = expected.records.get(each), contents.records.get(each)
        if wanted != got:
            found.append(f"flight of line {sequence_of(each)} (record {each}): expected {wanted}, loaded {got}")
    for tx in sorted(expected.prepared.keys() | contents.prepared.keys()):
        if expected.prepared.get(tx) != contents.prepared.get(tx):
            found.append(f"transaction {tx}: expected {expected.prepared.get(tx)}, loaded {contents.prepared.get(tx)}")
    return Comparison(
        expected_records=len(expected.records),
        loaded_records=len(contents.records),
        expected_prepared=len(expected.prepared),
        loaded_prepared=len(contents.prepared),
        different=len(found),
        differences=found[:DIFFERENCES_MAX],
    )
