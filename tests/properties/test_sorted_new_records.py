"""Sorted frames on a base whose highest id is known, as a worker knows it: new records go in without a look."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.fold.engine import Fold
from journal.fold.sorting import sort_frame
from journal.v1.journal_pb2 import Mark, Operation, Record
from journal.wire.keys import RowType, mark_key, row_type
from tests.support.build import JOURNAL, DictBase, add, commit, delete, marker, replace, update, wal

ids = st.integers(1, 5)
some_added = st.builds(lambda some: [add(each) for each in some], st.lists(ids, min_size=1, max_size=3))
one_other = st.builds(lambda make, each: [make(each)], st.sampled_from([update, replace, delete, delete]), ids)
added_by_commit = st.builds(lambda each: [add(each, tx=7), commit(7, 1)], ids)
frames = st.lists(
    st.lists(st.one_of(some_added, some_added, one_other, added_by_commit), min_size=1, max_size=3).map(
        lambda parts: [op for part in parts for op in part]
    ),
    min_size=2,
    max_size=6,
)
places = st.sets(st.integers(1, 6), max_size=4)


def begun(table: DictBase) -> Fold:
    row = table.get(mark_key(0))
    mark = Mark.FromString(row) if row else Mark(offset=-1)
    there = [Record.FromString(value).id for key, value in table.rows.items() if row_type(key) is RowType.RECORD]
    return Fold(mark, table, updates_row_bytes_max=60, highest=max(there, default=0))


def folded(groups: list[list[Operation]], plain: set[int], checkpoints: set[int], *, restart: bool) -> DictBase:
    """The table, with checkpoints behind some of the frames, of which all but some are sorted."""
    table = DictBase()
    fold = begun(table)
    for place, (offset, timestamp, frame) in enumerate(wal([marker()], *groups)):
        value = frame if place in plain else sort_frame(frame.SerializeToString(), offset, JOURNAL, 0, 1)
        fold.apply(offset, timestamp, value)
        if place in checkpoints:
            table.write(fold.changes())
            fold.checkpointed()
            fold = begun(table) if restart else fold
    table.write(fold.changes())
    return table


@given(frames, places, places, st.booleans())
def test_sorted_frames_of_new_records_leave_what_the_frames_leave(
    groups: list[list[Operation]], plain: set[int], checkpoints: set[int], restart: bool
) -> None:
    as_they_are = folded(groups, set(range(len(groups) + 1)), checkpoints, restart=restart)
    assert folded(groups, plain, checkpoints, restart=restart).rows == as_they_are.rows
