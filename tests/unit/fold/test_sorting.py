"""Frames sorted into runs: what runs contain, where they end, and how the fold applies runs on the same records."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Callable, Iterable

import pytest

from journal.errors import FrameError
from journal.fold.engine import Fold
from journal.fold.sorted_frame import Ids, SortedFrame, SortedRun
from journal.fold.sorting import sort_frame
from journal.limits import ID_MAX
from journal.v1.journal_pb2 import Frame, Mark, Operation, OperationType, Record, Update
from journal.wire.frames import decode_frame
from journal.wire.keys import record_key, updates_key
from tests.support.as_written import as_written
from tests.support.build import (
    JOURNAL,
    NONCE,
    DictBase,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    replace,
    rollback,
    update,
    wal,
)
from tests.support.golden import cases

OFFSET = 40


def sorted_of(value: Frame, offset: int = OFFSET) -> SortedFrame:
    return sort_frame(value.SerializeToString(), offset, JOURNAL, 0, 1)


def runs_of(*operations: Operation) -> list[SortedRun]:
    """The runs of these operations, which do not depend on their layout in bytes."""
    value = frame(2, *operations)
    runs = sorted_of(value).runs
    assert sort_frame(as_written(value), OFFSET, JOURNAL, 0, 1).runs == runs
    return runs


def ids(run: SortedRun) -> tuple[list[int], list[int], list[int]]:
    """Ids of added, updated and deleted records."""
    return list(array("q", run.added)), list(array("q", run.updated)), list(array("q", run.deleted))


def others(run: SortedRun) -> list[tuple[int, Operation]]:
    return [(index, Operation.FromString(raw)) for index, raw in run.others]


# ---- the header ----------------------------------------------------------------------------------------------------


def test_a_sorted_frame_has_the_header_of_its_frame() -> None:
    value = frame(7, add(1), update(1), epoch=3, node="node-2", group=5, last=False, issued=11)
    head = (3, "node-2", 2, 11, 5, 7, 6, False, b"")
    assert sorted_of(value)[:-1] == (*head, value.ByteSize())
    written = as_written(value)
    assert len(written) > value.ByteSize()
    assert sort_frame(written, OFFSET, JOURNAL, 0, 1)[:-1] == (*head, len(written))


def test_a_sorted_marker_has_its_nonce_and_no_runs() -> None:
    found = sorted_of(frame(3, marker(), epoch=2, node="node-2"))
    assert (found.epoch, found.node, found.nonce, found.runs) == (2, "node-2", NONCE, [])
    assert found.operations == 1


def test_a_heartbeat_changes_nothing() -> None:
    (run,) = runs_of()
    assert run == SortedRun(array("q"), [], array("q"), [], array("q"), [])


# ---- runs ----------------------------------------------------------------------------------------------------------


def test_operations_on_different_records_are_one_run_sorted_by_kind() -> None:
    (run,) = runs_of(delete(9), add(3), update(5), add(1), delete(7), update(4))
    assert ids(run) == ([3, 1], [5, 4], [9, 7])
    assert run.others == []


@pytest.mark.parametrize("second", [update(1), delete(1), add(1), replace(1)], ids=["update", "delete", "add", "repl"])
@pytest.mark.parametrize("first", [update(1), delete(1), add(1), replace(1)], ids=["update", "delete", "add", "repl"])
def test_a_second_operation_on_a_record_begins_a_run(first: Operation, second: Operation) -> None:
    runs = runs_of(add(2), first, second, update(2))
    assert len(runs) == 2
    assert kinds_in(runs[0]) == sorted([(add(2).type, 2), (first.type, 1)])
    assert kinds_in(runs[1]) == sorted([(second.type, 1), (update(2).type, 2)])


def kinds_in(run: SortedRun) -> list[tuple[OperationType, int]]:
    """Type and record of the plain operations in a run."""
    added, updated, deleted = ids(run)
    plain = [*((add(0).type, each) for each in added), *((update(0).type, each) for each in updated)]
    replaceable = [(op.type, op.id) for _, op in others(run) if not op.tx]
    return sorted([*plain, *((delete(0).type, each) for each in deleted), *replaceable])


def test_a_commit_ends_its_run_and_no_other_operation_of_a_transaction_does() -> None:
    first, second = runs_of(
        add(1), add(2, tx=7), prepare(7, 1), rollback(7, 1), add(3), add(4, tx=8), commit(8, 1), add(5), update(4)
    )
    assert ids(first) == ([1, 3], [], [])
    assert [op.type for _, op in others(first)] == [op(1).type for op in (add, prepare, rollback, add, commit)]
    assert ids(second) == ([5], [4], [])
    assert second.others == []


def test_a_record_of_a_run_before_a_commit_does_not_end_the_one_behind_it() -> None:
    runs = runs_of(add(1), commit(7), update(1), update(2))
    assert [ids(run) for run in runs] == [([1], [], []), ([], [1, 2], [])]


def test_staged_operations_on_a_record_do_not_end_a_run() -> None:
    (run,) = runs_of(update(1), update(1, tx=7), update(1, tx=7), delete(1, tx=8))
    assert ids(run) == ([], [1], [])
    assert len(run.others) == 3


def test_replaceable_updates_and_operations_of_transactions_keep_their_index_and_order() -> None:
    operations = [add(1), replace(2, b"a", subject=3), add(4, tx=7), update(3), replace(5, b"b"), commit(7, 1)]
    (run, rest) = runs_of(*operations)
    assert others(run) == [(index, operations[index]) for index in (1, 2, 4, 5)]
    assert ids(run) == ([1], [3], [])
    assert rest.others == []


def test_an_index_counts_from_the_frames_first_operation_in_every_run() -> None:
    operations = [add(1), commit(7), replace(1), update(2), update(2), replace(3)]
    runs = runs_of(*operations)
    assert [index for run in runs for index, _ in run.others] == [1, 2, 5]
    rows = [Update.FromString(row).position for run in runs for row in run.updated_rows]
    assert [(place.offset, place.index, place.ordinal) for place in rows] == [(OFFSET, 3, 0), (OFFSET, 4, 0)]


# ---- rows ----------------------------------------------------------------------------------------------------------


def test_rows_are_byte_for_byte_those_that_the_fold_makes_of_the_frame() -> None:
    operations = [add(n, b"record %d" % n, kind=9) for n in (1, 2, ID_MAX)]
    operations += [update(n, b"x" * n, kind=3, subject=n) for n in (1, 2)]
    base = DictBase()
    fold = Fold(Mark(offset=-1), base, updates_row_bytes_max=4096)
    fold.apply(0, 0, frame(1, marker()))
    fold.apply(OFFSET, 0, frame(2, *operations))
    rows = dict(fold.changes())
    adding, updating = runs_of(*operations)
    for record_id, row in zip(adding.added, adding.added_rows, strict=True):
        assert rows[record_key(record_id)] == row
    for record_id, row in zip(updating.updated, updating.updated_rows, strict=True):
        assert (rows[updates_key(record_id)] or b"").endswith(row)
    place = Record.FromString(adding.added_rows[2]).position
    assert (place.offset, place.index) == (OFFSET, 2)


# ---- what is no frame ----------------------------------------------------------------------------------------------


def refusal(read: Callable[[], object]) -> str:
    try:
        read()
    except FrameError as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no frame at all",
        frame(1, marker(), journal=bytes(16)).SerializeToString(),
        frame(2, add(0)).SerializeToString(),
        frame(2, add(1, kind=256)).SerializeToString(),
        frame(2, Operation(id=1)).SerializeToString(),
        frame(2, commit(0)).SerializeToString(),
        frame(2, add(1), marker()).SerializeToString(),
        frame(2, marker(b"short")).SerializeToString(),
        frame(2, previous=0).SerializeToString(),
        frame(2, issued=-1).SerializeToString(),
    ],
)
def test_sorting_refuses_bytes_for_the_reason_for_which_decoding_does(value: bytes) -> None:
    reason = refusal(lambda: decode_frame(value, JOURNAL, 0, 1))
    assert reason
    assert refusal(lambda: sort_frame(value, OFFSET, JOURNAL, 0, 1)) == reason


def test_sorting_refuses_a_record_of_another_shard() -> None:
    for operation in (add(1), update(1), delete(1)):
        value = frame(2, operation)
        for raw in (value.SerializeToString(), as_written(value)):
            with pytest.raises(FrameError, match="belongs to shard 1"):
                sort_frame(raw, OFFSET, JOURNAL, 0, 2)
            assert sort_frame(raw, OFFSET, JOURNAL, 1, 2).operations == 1


def test_sorting_refuses_the_golden_frames_that_decoding_refuses() -> None:
    refused = set()
    for case in cases():
        for shard, entries in case.wal.items():
            for entry in entries:
                where = case.journal, shard, case.shards
                reason = refusal(lambda: decode_frame(entry.value, *where))  # noqa: B023  # called at once
                found = refusal(lambda: sort_frame(entry.value, entry.offset, *where))  # noqa: B023
                assert found == reason, case.name
                refused.add(bool(reason))
    assert refused == {True, False}


# ---- records that runs meet again ----------------------------------------------------------------------------------

Groups = Iterable[list[Operation]]


class Twice:
    """Two folds over the same base: one takes frames as they are, and the other takes sorted ones. Both must leave the
    same.

    Sorted frames are marshalled, as if they came from another process.
    """

    def __init__(self, *there: int) -> None:
        """`there` are records that an old checkpoint has put into the base."""
        before = Fold(Mark(offset=-1), DictBase(), updates_row_bytes_max=64)
        for entry in wal([marker()], [add(each, b"old") for each in there]):
            before.apply(*entry)
        rows = {key: value for key, value in before.changes() if value is not None}
        self.bases = DictBase(rows), DictBase(rows)
        self.folds = [
            Fold(before.mark, base, updates_row_bytes_max=64, highest=max(there, default=0)) for base in self.bases
        ]
        self._number = 2

    def take(self, *operations: Operation, both_plain: bool = False) -> None:
        """Apply one frame with these operations to both folds."""
        self._number += 1
        value, offset = frame(self._number, *operations), 2 * self._number
        plain, fold = self.folds
        plain.apply(offset, 0, value)
        fold.apply(offset, 0, value if both_plain else received(sort_frame(as_written(value), offset, JOURNAL, 0, 1)))
        assert sorted(self.changes(1)) == sorted(self.changes(0))

    def changes(self, which: int = 1) -> list[tuple[bytes, bytes]]:
        return [(key, value or b"gone") for key, value in self.folds[which].changes()]

    def checkpoint(self) -> None:
        for fold, base in zip(self.folds, self.bases, strict=True):
            base.write(fold.changes())
            fold.checkpointed()
        assert self.bases[0].rows == self.bases[1].rows

    @property
    def counts(self) -> tuple[int, int, int]:
        """Number of records, and of operations applied and rejected since the start."""
        mark = self.folds[1].mark
        return mark.records, mark.applied, mark.rejected

    def data(self, record_id: int) -> bytes:
        """The data of a record after a checkpoint; empty if it does not exist."""
        self.checkpoint()
        row = self.bases[1].get(record_key(record_id))
        return b"" if row is None else Record.FromString(row).data


def received(value: SortedFrame) -> SortedFrame:
    fields = marshal.loads(marshal.dumps((*value[:-1], [tuple(run) for run in value.runs])))
    return SortedFrame._make(fields)


def test_new_ids_below_the_highest_are_added_and_existing_ones_are_not() -> None:
    twice = Twice(50)
    twice.take(add(90), add(80))
    twice.take(add(70), add(60), add(80))
    twice.take(add(75), add(85), add(95))
    twice.take(add(50, b"new"), add(60, b"new"))
    assert twice.counts == (8, 8, 3)
    assert twice.data(50) == b"old"
    assert twice.data(60) == b""


def test_the_highest_id_of_an_unordered_frame_is_not_added_again() -> None:
    twice = Twice(50)
    twice.take(add(40), add(90))
    twice.take(add(90, b"new"), add(95))
    assert twice.counts == (4, 4, 1)
    assert twice.data(90) == b""


def test_a_chosen_id_that_the_base_has_is_not_added() -> None:
    twice = Twice(1, 2, 50)
    twice.take(add(51, b"new"), add(1, b"new"))
    twice.take(add(2, b"new"))
    assert twice.counts == (4, 4, 2)
    assert (twice.data(1), twice.data(2), twice.data(51)) == (b"old", b"old", b"new")


def test_a_record_deleted_since_the_checkpoint_is_added_again_without_its_updates() -> None:
    twice = Twice(1, 50)
    twice.take(update(1, b"of the first"), update(50))
    twice.checkpoint()
    twice.take(delete(1), delete(50))
    twice.take(add(1, b"again"), add(51))
    assert twice.counts[0] == 2
    assert twice.data(1) == b"again"
    assert twice.bases[1].get(updates_key(1)) is None


def test_a_record_is_deleted_and_added_again_in_one_frame() -> None:
    twice = Twice(1, 50)
    twice.take(update(1), delete(1), add(1, b"again"), update(1, b"of the second"), add(51), delete(51), add(51, b"x"))
    assert twice.counts == (3, 9, 0)
    assert (twice.data(1), twice.data(51)) == (b"again", b"x")


def test_a_record_added_and_deleted_since_the_checkpoint_is_added_again() -> None:
    twice = Twice()
    twice.take(add(7), add(9))
    twice.take(delete(9), delete(7))
    twice.take(add(8), add(9, b"again"))
    twice.take(add(10))
    twice.take(add(9))
    assert twice.counts == (3, 7, 1)
    assert twice.data(9) == b"again"


def test_a_record_added_by_an_unsorted_frame_is_not_added_again() -> None:
    twice = Twice(50)
    twice.take(add(60), add(61), both_plain=True)
    twice.take(add(61, b"new"), add(62, b"new"))
    twice.take(add(70), both_plain=True)
    twice.take(add(70, b"new"), add(71))
    assert twice.counts == (6, 6, 2)
    assert (twice.data(61), twice.data(62), twice.data(70)) == (b"", b"new", b"")


def test_a_record_added_by_a_commit_is_not_added_again() -> None:
    twice = Twice(50)
    twice.take(add(60, tx=7), add(90, tx=7))
    twice.take(commit(7, 2), add(60, b"new"), add(70, b"new"))
    twice.take(add(90, b"new"), add(91))
    assert twice.counts == (5, 8, 2)  # staging counts, and the COMMIT is one
    assert (twice.data(60), twice.data(70), twice.data(90)) == (b"", b"new", b"")


def test_after_a_checkpoint_records_below_the_highest_are_looked_up_again() -> None:
    twice = Twice()
    twice.take(add(5), add(9))
    twice.checkpoint()
    twice.take(add(9, b"new"), add(7, b"new"), add(10))
    twice.take(add(5, b"new"), update(9, b"u"), delete(10))
    assert twice.counts == (3, 6, 2)
    assert (twice.data(5), twice.data(7), twice.data(9)) == (b"", b"new", b"")


def test_a_record_with_the_largest_id_is_added_once() -> None:
    twice = Twice()
    twice.take(add(ID_MAX))
    twice.take(add(ID_MAX, b"new"), add(1))
    assert twice.counts == (2, 2, 1)


def test_updates_and_deletes_of_missing_records_change_nothing() -> None:
    twice = Twice(5)
    twice.take(update(4), update(6), delete(3), delete(7), replace(8))
    twice.take(delete(5))
    twice.take(update(5), delete(5), replace(5))
    assert twice.counts == (0, 2, 8)


def test_a_replaceable_update_comes_behind_the_others_of_its_run_and_touches_no_record_of_them() -> None:
    twice = Twice(1, 2)
    twice.take(replace(1, b"a"), update(2, b"b"), add(3), replace(3, b"c"), update(3, b"d"), replace(3, b"e"))
    twice.checkpoint()
    twice.take(replace(3, b"f"), replace(1, b"g"), delete(2))
    twice.checkpoint()
    assert twice.counts == (2, 11, 0)


def test_updates_that_do_not_fit_their_row_are_spilled_where_they_stand_in_the_wal() -> None:
    twice = Twice(1)
    for n in range(4):
        twice.take(update(1, b"%d" % n * 30), add(10 + n), update(10 + n, b"x" * 70))
    twice.checkpoint()
    twice.take(update(1, b"more"), delete(10))
    twice.take(delete(1), add(1), update(1, b"y" * 70))
    assert twice.counts[2] == 0


def test_ids_come_as_an_array_or_as_its_bytes() -> None:
    value = sorted_of(frame(2, add(1), update(2), delete(3)))
    kinds: set[type[Ids]] = {type(each) for run in value.runs for each in (run.added, run.updated, run.deleted)}
    assert kinds == {array}
    (run,) = received(value).runs
    assert [type(run[place]) for place in (0, 2, 4)] == [bytes, bytes, bytes]


def test_a_fold_that_tells_operations_refuses_sorted_frames() -> None:
    fold = Fold(Mark(offset=-1), DictBase(), updates_row_bytes_max=64, tell=True)
    fold.apply(0, 0, sorted_of(frame(1, marker()), 0))
    with pytest.raises(AssertionError, match="takes no sorted frames"):
        fold.apply(2, 0, sorted_of(frame(2, add(1)), 2))
