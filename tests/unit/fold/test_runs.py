"""The fold takes neighbouring operations of one type at once: the rows are those of one operation at a time."""

from __future__ import annotations

from journal.fold.engine import Fold
from journal.limits import ID_MAX
from journal.v1.journal_pb2 import Mark, Operation, Record
from journal.wire.keys import record_key, updates_key
from tests.support.build import DictBase, add, commit, delete, frame, marker, replace, update, wal


class Twice:
    """Two folds over the same base: one knows the highest id in the base and takes runs as a whole, and the other knows
    nothing and takes operations one by one, because it tells them. Both must leave the same."""

    def __init__(self, *there: int) -> None:
        """`there` are records that an old checkpoint has put into the base."""
        before = Fold(Mark(offset=-1), DictBase(), updates_row_bytes_max=64)
        for entry in wal([marker()], [add(each, b"old") for each in there]):
            before.apply(*entry)
        rows = {key: value for key, value in before.changes() if value is not None}
        self.bases = DictBase(rows), DictBase(rows)
        self.folds = [
            Fold(before.mark, self.bases[0], updates_row_bytes_max=64, tell=True),
            Fold(before.mark, self.bases[1], updates_row_bytes_max=64, highest=max(there, default=0)),
        ]
        self._number = 2

    def take(self, *operations: Operation) -> None:
        """Apply one frame with these operations to both folds."""
        self._number += 1
        for fold in self.folds:
            fold.apply(2 * self._number, 0, frame(self._number, *operations))
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
