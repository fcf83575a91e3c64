"""Parts of the engine that golden cases do not show: errors, skips, the cost of a checkpoint, and what it tells."""

from __future__ import annotations

import pytest

from journal.errors import FrameError, GapError
from journal.fold.engine import Fold
from journal.v1.journal_pb2 import Mark, Operation, Skipped, Updates
from journal.wire.keys import RowType, mark_key, record_key, row_type, skipped_key, updates_key
from tests.support.build import (
    BuiltFrame,
    DictBase,
    add,
    commit,
    delete,
    frame,
    marker,
    prepare,
    replace,
    rollback,
    skipped,
    update,
    wal,
)


def fold_of(
    *groups: list[Operation],
    base: DictBase | None = None,
    mark: Mark | None = None,
    tell: bool = False,
    bound: int = 64,
) -> Fold:
    """A fold that has applied a marker and these groups, one frame each."""
    fold = Fold(mark or Mark(offset=-1), base or DictBase(), updates_row_bytes_max=bound, tell=tell)
    for entry in wal([marker()], *groups):
        fold.apply(*entry)
    return fold


def checkpoint(fold: Fold, base: DictBase) -> None:
    base.write(fold.changes())
    fold.checkpointed()


def row_types(fold: Fold) -> list[str]:
    return [row_type(key).value for key, _ in fold.changes()]


# ---- frames that do not follow --------------------------------------------------------------------------------


def test_a_frame_that_skips_numbers_is_a_gap_and_changes_nothing() -> None:
    fold = fold_of([add(1)])
    before = fold.changes()
    with pytest.raises(GapError, match="frame 9 follows frame 8, and frame 2 was the last"):
        fold.apply(100, 0, frame(9, add(2)))
    assert fold.changes() == before


@pytest.mark.parametrize(
    "bad", [frame(3, add(2), epoch=2), frame(3, marker()), frame(3, epoch=2)], ids=["operations", "again", "heartbeat"]
)
def test_an_epoch_begins_with_its_marker_and_has_no_other(bad: BuiltFrame) -> None:
    fold = fold_of([add(1)])
    before = fold.changes()
    with pytest.raises(FrameError):
        fold.apply(100, 0, bad)
    assert fold.changes() == before


def test_a_frame_at_or_below_the_mark_is_not_applied_again() -> None:
    fold = fold_of([add(1)])
    assert not fold.apply(2, 0, frame(3, add(2)))
    assert not fold.apply(0, 0, frame(3, add(2)))
    assert fold.apply(4, 0, frame(3, add(2)))


def test_the_group_boundary_follows_the_last_frame_applied() -> None:
    fold = fold_of([add(1)])
    fold.apply(10, 0, frame(3, add(2), last=False))
    assert not fold.at_group_boundary
    fold.apply(11, 0, frame(4, add(3)))
    assert fold.at_group_boundary


def test_the_mark_given_is_not_written_to() -> None:
    mark = Mark(offset=-1)
    fold_of([add(1)], mark=mark)
    assert mark == Mark(offset=-1)


# ---- skips ------------------------------------------------------------------------------------------------------


def test_a_skipped_record_is_kept_as_a_row() -> None:
    fold = fold_of([add(1)])
    row = skipped(3, raw=b"garbage")
    assert fold.skip(row, 55, None)
    assert (skipped_key(0, 3), row.SerializeToString()) in fold.changes()
    assert (fold.mark.offset, fold.mark.timestamp, fold.mark.skipped, fold.mark.number) == (3, 55, 1, 2)


@pytest.mark.parametrize("offset", [0, 2])
def test_a_skip_at_or_below_the_mark_does_nothing(offset: int) -> None:
    fold = fold_of([add(1)])
    before = fold.changes()
    assert not fold.skip(skipped(offset), 55, frame(3, add(2)))
    assert fold.changes() == before


def test_a_skipped_frame_at_a_groups_end_is_a_boundary() -> None:
    fold = fold_of([add(1)])
    fold.apply(10, 0, frame(3, add(2), last=False))
    fold.skip(Skipped(offset=11), 0, frame(4, add(3)))
    assert fold.at_group_boundary


# ---- totality ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        update(9),
        replace(9),
        delete(9),
        add(1),
        prepare(5, 1),
        prepare(6),
        prepare(7, 2),
        commit(5),
        commit(6, 1),
        rollback(5),
        rollback(7, 2),
        add(9, tx=6),
        delete(1, tx=6),
    ],
    ids=str,
)
def test_an_operation_that_its_state_does_not_allow_changes_nothing_but_the_count(op: Operation) -> None:
    base = DictBase()
    fold = fold_of([add(1), prepare(6, 0), add(2, tx=7)], base=base)
    checkpoint(fold, base)
    before = Mark.FromString(base.rows[mark_key(0)])
    fold.apply(100, before.timestamp, frame(3, op))
    assert row_types(fold) == ["mark"]
    before.rejected, before.offset, before.number, before.group, before.previous = 1, 100, 3, 3, fold.mark.previous
    assert fold.mark == before


# ---- what a checkpoint costs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operations",
    [
        [add(1), delete(1)],
        [add(1), update(1, b"u"), replace(1, bytes(500)), update(1, bytes(500)), delete(1)],
        [add(1, tx=7), delete(1, tx=7), commit(7, 2)],
        [add(1, tx=7), rollback(7, 1)],
        [prepare(7), rollback(7)],
    ],
)
def test_a_record_added_and_deleted_within_a_checkpoint_costs_no_row(operations: list[Operation]) -> None:
    assert row_types(fold_of(operations)) == ["mark"]
    assert row_types(fold_of(*[[one] for one in operations])) == ["mark"]


def test_a_delete_tombstones_every_row_of_the_record_and_nothing_else() -> None:
    base = DictBase()
    fold = fold_of(
        [add(1), update(1, b"u"), update(1, bytes(500)), replace(1, bytes(500)), add(2), update(2)], base=base
    )
    checkpoint(fold, base)
    of_record = {key for key in base.rows if key.startswith(record_key(1))}
    assert len(of_record) == 4
    fold.apply(100, 0, frame(3, delete(1)))
    assert {key for key, value in fold.changes() if value is None} == of_record


def test_no_key_is_changed_twice_in_a_checkpoint_and_the_mark_is_last() -> None:
    base = DictBase()
    fold = fold_of([add(1), update(1, bytes(500)), replace(1, b"r"), add(5, tx=7)], base=base)
    checkpoint(fold, base)
    again = [delete(1), add(1), update(1, bytes(500)), replace(1, b"r"), commit(7, 1), add(6, tx=7)]
    fold.apply(100, 0, frame(3, *again))
    changed = [key for key, _ in fold.changes()]
    assert len(changed) == len(set(changed))
    assert changed[-1] == mark_key(0)


def test_a_thousand_updates_of_a_record_are_not_rewritten_with_the_next() -> None:
    base = DictBase()
    fold = fold_of([add(1), *[update(1, bytes(100)) for _ in range(1000)]], base=base, bound=4096)
    checkpoint(fold, base)
    fold.apply(100, 0, frame(3, update(1, b"one more")))
    assert sum(len(value or b"") for _, value in fold.changes()) < 2 * 4096 + 500


def test_updates_share_a_row_up_to_its_bound() -> None:
    base = DictBase()
    checkpoint(fold_of([add(1), *[update(1, bytes(100)) for _ in range(100)]], base=base, bound=4096), base)
    head = base.rows[updates_key(1)]
    assert 3500 < len(head) < 4500
    spilled = [key for key in base.rows if row_type(key) is RowType.SPILLED]
    assert len(Updates.FromString(head).updates) + len(spilled) == 100


def test_tombstones_are_in_the_order_of_their_keys_and_so_are_lone_updates_and_others() -> None:
    ids = [900, 5, 40_000, 77, 1_000_003]
    base = DictBase()
    fold = fold_of([*map(add, range(1, 11)), *map(add, ids), *map(update, ids)], base=base)
    checkpoint(fold, base)
    fold.apply(100, 0, frame(3, *map(delete, ids), *map(update, (7, 3, 9)), *map(replace, (8, 2, 4))))
    gone = [key for key, value in fold.changes() if value is None]
    assert [key for key in gone if row_type(key) is RowType.RECORD] == [record_key(id) for id in sorted(ids)]
    assert [key for key in gone if row_type(key) is RowType.UPDATES] == [updates_key(id) for id in sorted(ids)]
    puts = [key for key, value in fold.changes() if value is not None]
    assert puts == [*map(updates_key, (3, 7, 9, 2, 4, 8)), mark_key(0)]


def test_changes_may_be_asked_for_again() -> None:
    fold = fold_of([add(1), update(1), add(2, tx=7)])
    assert fold.changes() == fold.changes()


# ---- what it tells ------------------------------------------------------------------------------------------------


def test_added_records_of_the_kinds_asked_for_are_told_even_if_they_are_deleted_again() -> None:
    fold = Fold(Mark(offset=-1), DictBase(), updates_row_bytes_max=64, tell_added=frozenset([7]))
    groups = [
        [marker()],
        [add(1, kind=7), add(2, kind=8), update(1, kind=7), delete(1)],
        [add(3, kind=7, tx=5), add(4, kind=8, tx=5), add(6, kind=7, tx=5), delete(6, tx=5), commit(5, 4)],
    ]
    for entry in wal(*groups):
        fold.apply(*entry)
    assert [(record_id, kind, offset) for record_id, kind, _, offset in fold.added()] == [(1, 7, 2), (3, 7, 4)]
    assert fold.happened() == []
    fold.checkpointed()
    assert fold.added() == []


def test_what_happened_is_told_once_and_only_if_asked_for() -> None:
    base = DictBase()
    fold = fold_of([add(1), delete(1), update(1)], base=base, tell=True)
    assert [(op.type, *place) for op, *place in fold.happened()] == [(1, 2, 0, 0), (3, 2, 1, 0)]
    checkpoint(fold, base)
    assert fold.happened() == []
    assert fold_of([add(1)]).happened() == []


def test_open_and_prepared_parts_are_listed_also_after_a_restart() -> None:
    base = DictBase()
    fold = fold_of([add(1, b"abc", tx=7), add(2, tx=8), prepare(8, 1, b"xid")], base=base)
    checkpoint(fold, base)
    restarted = Fold(fold.mark, base, updates_row_bytes_max=64)
    for one in (fold, restarted):
        parts = {part.header.tx: part.header for part in one.transaction_parts()}
        assert {tx: header.prepared for tx, header in parts.items()} == {7: False, 8: True}
        assert (parts[7].bytes, parts[7].staged, parts[8].data) == (3, 1, b"xid")


def test_parts_of_other_shards_in_the_same_copy_are_left_alone() -> None:
    base = DictBase()
    checkpoint(fold_of([add(1, tx=7)], base=base, mark=Mark(offset=-1, shard=1)), base)
    fold = fold_of([commit(7, 1)], base=base)
    assert fold.mark.rejected == 1
    assert not list(fold.transaction_parts())
