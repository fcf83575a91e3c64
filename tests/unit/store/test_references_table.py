"""Rows of messages and references that were freed together are taken again: together, in part, and one by one."""

from __future__ import annotations

import pytest

from journal.store.queues.references import ARRIVING, SETTLING, References


def _with_freed(table: References, first_id: int, count: int) -> None:
    """So many messages that came together and went together."""
    nothing = [0] * count
    rows = table.add_routed(range(first_id, first_id + count), 1, nothing, nothing, nothing, nothing, 2, ARRIVING)
    for row in rows[1]:
        table.flags[row] = SETTLING
    table.drop_all_settled(*rows)


@pytest.mark.parametrize("again", [3, 10, 14])
def test_freed_rows_are_taken_again_by_as_many_fewer_or_more(again: int) -> None:
    table = References()
    _with_freed(table, 100, 10)
    assert table.references == 0
    nothing = [0] * again
    rows = table.add_routed(range(200, 200 + again), 1, nothing, nothing, nothing, nothing, 2, ARRIVING)
    assert table.references == again
    for column in rows:
        assert len(set(column)) == again
        assert max(column) < max(again, 10)
    assert [table.row_of[each] for each in range(200, 200 + again)] == list(rows[0])


def test_freed_rows_are_taken_again_one_by_one() -> None:
    table = References()
    _with_freed(table, 100, 10)
    taken = set()
    for number in range(12):
        message_row = table.add_message(200 + number, 1, 4, 0, 0, 0, True, (), 0)
        taken.add((message_row, table.add_reference(message_row, 2, ARRIVING)))
        assert table.references == number + 1
    assert [sorted(column) for column in zip(*taken, strict=True)] == [list(range(12))] * 2
