"""The containers under a QueueState: rows, lines, deadlines, holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from journal.store.queues.deadlines import Deadlines
from journal.store.queues.holds import Holds
from journal.store.queues.lines import Line
from journal.store.queues.references import FREE, HELD, READY, SETTLING, STATE, References


def add_message(table: References, message: int) -> int:
    return table.add_message(message, 1, 4, 100, 0, 0, True, (), 0)


def lined_up(count: int) -> tuple[References, Line, list[int]]:
    """A line of `count` rows, in places 1, 2 and so on."""
    table = References()
    line, rows = Line(table, 5), []
    for place in range(1, count + 1):
        row = table.add_reference(add_message(table, place), 1, READY)
        table.set_place(row, place)
        line.append(row, place)
        rows.append(row)
    return table, line, rows


def drain(line: Line) -> list[int]:
    popped: list[int] = []
    while (row := line.first()) >= 0:
        line.pop(row, HELD)
        popped.append(row)
    return popped


# ---- rows --------------------------------------------------------------------------------------------------------


def test_rows_are_used_again() -> None:
    table = References()
    for _ in range(3):
        message_row = add_message(table, 7)
        row = table.add_reference(message_row, 1, READY)
        assert (message_row, row, table.references) == (0, 0, 1)
        table.drop_reference(row)
        table.drop_message(message_row)
    assert (table.references, table.row_of) == (0, {})


def test_a_message_finds_its_references_by_queue_however_many_there_are() -> None:
    table = References()
    message_row = add_message(table, 7)
    rows = {queue: table.add_reference(message_row, queue, READY) for queue in range(1, 6)}
    assert table.of_message(message_row) == list(rows.values())
    assert {queue: table.find(message_row, queue) for queue in range(1, 7)} == {**rows, 6: -1}
    for queue in range(1, 5):
        table.drop_reference(rows[queue])
        assert table.find(message_row, queue) == -1
    assert table.of_message(message_row) == [rows[5]]
    table.drop_reference(rows[5])
    assert table.of_message(message_row) == []
    assert table.find(message_row, 5) == -1


def test_places_of_128_bits_are_kept_whole() -> None:
    table = References()
    row = table.add_reference(add_message(table, 7), 1, READY)
    for place in (0, 1, 2**64 - 1, 2**64, 2**127 + 1):
        table.set_place(row, place)
        assert table.place(row) == place


# ---- lines -------------------------------------------------------------------------------------------------------


def test_a_line_gives_rows_in_order_and_what_comes_back_in_its_place() -> None:
    _, line, rows = lined_up(200)
    for _ in range(50):
        line.pop(line.first(), HELD)
    for row in (rows[30], rows[2], rows[10]):
        line.put_back(row)
    assert drain(line) == [rows[2], rows[10], rows[30], *rows[50:]]


def test_a_row_that_left_the_middle_is_not_used_again_while_the_line_has_it() -> None:
    table, line, rows = lined_up(10)
    line.leave(rows[5], SETTLING)
    table.drop_reference(rows[5])
    assert table.flags[rows[5]] & STATE == FREE
    other = table.add_reference(add_message(table, 99), 1, READY)
    assert other != rows[5]
    assert drain(line) == rows[:5] + rows[6:]
    assert table.add_reference(add_message(table, 100), 1, READY) == rows[5]


def test_leaving_the_middle_and_coming_back_changes_nothing() -> None:
    _, line, rows = lined_up(10)
    for _ in range(100):
        line.leave(rows[4], HELD)
        line.put_back(rows[4])
    assert len(line) == 10
    assert drain(line) == rows


def test_a_line_drops_rows_that_have_left_once_they_are_most() -> None:
    table, line, rows = lined_up(1000)
    for row in rows[1:900]:
        line.leave(row, SETTLING)
        table.drop_reference(row)
    assert len(line) < 250
    assert table.references < 250
    assert drain(line) == [rows[0], *rows[900:]]


def test_what_was_loaded_in_any_order_is_sorted() -> None:
    table = References()
    line = Line(table, 5)
    by_place = {}
    for place in (5, 2, 9, 1, 7):
        row = table.add_reference(add_message(table, place), 1, READY)
        table.set_place(row, place)
        line.load(row, place)
        by_place[place] = row
    line.sort()
    assert line.is_behind(10)
    assert not line.is_behind(9)
    assert drain(line) == [by_place[place] for place in (1, 2, 5, 7, 9)]


def test_a_drained_line_is_empty_and_begins_anew() -> None:
    table, line, rows = lined_up(5)
    line.leave(rows[0], HELD)
    assert sorted(line.drain()) == rows[1:]
    assert line.first() == -1
    table.set_place(rows[3], 1)
    line.append(rows[3], 1)
    assert drain(line) == [rows[3]]


# ---- deadlines ---------------------------------------------------------------------------------------------------


def test_deadlines_come_by_time_and_only_if_they_are_still_true() -> None:
    times = {1: 30, 2: 10, 3: 20}
    deadlines = Deadlines(lambda row: times.get(row, 0))
    for row, time in times.items():
        deadlines.add(row, time)
    del times[2]
    deadlines.remove()
    assert deadlines.next() == 20
    assert deadlines.pop(19, 9) == ([], False)
    assert [deadlines.pop(100, 1) for _ in range(3)] == [([3], True), ([1], True), ([], False)]
    assert deadlines.next() == 0


def test_deadlines_that_change_often_are_found_by_their_last_time() -> None:
    times: dict[int, int] = {}
    deadlines = Deadlines(lambda row: times.get(row, 0))
    for time in range(1, 2000):
        for row in (1, 2):
            if row in times:
                deadlines.remove()
            times[row] = time * 10 + row
            deadlines.add(row, times[row])
    assert deadlines.count == 2
    assert deadlines.pop(10**6, 1) == ([1], True)
    del times[1]
    assert deadlines.pop(10**6, 1) == ([2], True)


# ---- no step grows -----------------------------------------------------------------------------------------------


class CountedFlags(bytearray):
    """A column that counts how many rows are read."""

    reads = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.reads += len(found) if isinstance(key, slice) else 1
        return found


Steps = Iterable[tuple[Callable[[], int], Callable[[], object]]]
"""What counts rows looked at, and what is done then."""


def counted_line(count: int) -> tuple[Callable[[], int], Line, list[int]]:
    table, line, rows = lined_up(count)
    flags = table.flags = CountedFlags(table.flags)
    return lambda: flags.reads, line, rows


def leaving_the_middle(count: int) -> Steps:
    reads, line, rows = counted_line(count)
    for row in rows[1 : count * 9 // 10]:
        yield reads, partial(line.leave, row, SETTLING)
    yield reads, partial(line.leave, rows[0], SETTLING)
    yield reads, line.first


def leaving_after_coming_back(count: int) -> Steps:
    reads, line, rows = counted_line(count)
    drain(line)
    for row in [*rows[::2], *rows[1::2]]:
        yield reads, partial(line.put_back, row)
    for row in rows[1 : count * 9 // 10]:
        yield reads, partial(line.leave, row, SETTLING)
    yield reads, partial(line.leave, rows[0], SETTLING)
    yield reads, line.first
    yield reads, line.pop_last


def changing_times(count: int) -> Steps:
    times = {row: row for row in range(1, count + 1)}
    reads = 0

    def time_of(row: int) -> int:
        nonlocal reads
        reads += 1
        return times.get(row, 0)

    deadlines = Deadlines(time_of)
    for row in times:
        deadlines.add(row, row)
    for row in range(1, count * 9 // 10):
        deadlines.remove()
        del times[row]
    yield lambda: reads, deadlines.next
    yield lambda: reads, partial(deadlines.pop, count, 250)
    for row in range(count + 1, 2 * count):
        times[row] = row
        yield lambda: reads, partial(deadlines.add, row, row)


@pytest.mark.parametrize("steps", [leaving_the_middle, leaving_after_coming_back, changing_times])
def test_no_step_looks_at_more_rows_where_there_are_more(steps: Callable[[int], Steps]) -> None:
    dearest = 0
    for reads, act in steps(12_000):
        before = reads()
        act()
        dearest = max(dearest, reads() - before)
    assert 0 < dearest < 5000


# ---- holds -------------------------------------------------------------------------------------------------------


def test_holders_are_known_while_they_hold_something() -> None:
    holds = Holds()
    for row, holder in ((1, "one"), (2, "two"), (3, "one")):
        holds.add(row, holder)
    assert (list(holds.rows("one")), holds.holder(2), holds.holder(4)) == ([1, 3], "two", "")
    for row in (1, 3, 4):
        holds.remove(row)
    assert (holds.holders(), list(holds.rows("one"))) == (["two"], [])
