"""The engine and `verify` were written apart; whatever the history, and wherever checkpoints fall, they agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.verify import fold_shard, verify_shard
from journal.verify.state import fingerprint
from journal.verify.wal_fold import Happening
from tests.support.build import JOURNAL
from tests.support.fold import Folded, always, fold_entries, never
from tests.support.golden import (
    WalEntry,
    happened_of_engine,
    happened_of_verify,
    outcome_of_rows,
)
from tests.support.histories import histories

ROW_BOUNDS = st.sampled_from([0, 60, 200, 4096])
CHECKPOINTS = st.sets(st.integers(1, 14))


def fold(
    entries: list[WalEntry],
    bound: int,
    checkpoints: set[int],
    *,
    restart: bool = False,
    tell: bool = True,
) -> Folded:
    return fold_entries(
        entries,
        JOURNAL,
        0,
        1,
        updates_row_bytes_max=bound,
        checkpoint=checkpoints.__contains__,
        restart=restart,
        tell=tell,
    )


@given(histories(), ROW_BOUNDS, CHECKPOINTS, st.booleans())
def test_tables_equal_the_independent_fold(
    entries: list[WalEntry], bound: int, checkpoints: set[int], restart: bool
) -> None:
    folded = fold(entries, bound, checkpoints, restart=restart)
    report = verify_shard(
        0,
        1,
        JOURNAL,
        wal=[(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries],
        table=folded.rows.items(),
        rows_in_partition_order=False,
    )
    differences = [str(one) for one in report.differences.kept if one.what not in ("rejected", "skipped")]
    mark = outcome_of_rows(folded.rows, 0)["mark"]
    assert folded.stopped is None
    assert not differences
    assert not report.findings
    assert not report.unchecked
    assert report.differences.counts["rejected"] == mark["rejected"]
    assert report.differences.counts["skipped"] == mark["skipped"]


@given(histories(), ROW_BOUNDS, CHECKPOINTS)
def test_what_happened_is_the_same_for_every_checkpoint_interval_and_both_folds(
    entries: list[WalEntry], bound: int, checkpoints: set[int]
) -> None:
    happened: list[Happening] = []
    skips = {entry.offset for entry in entries if entry.skip}
    records = [(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries]
    fold_shard(0, 1, JOURNAL, records, skips, happened=happened.append)
    told = happened_of_engine(fold(entries, bound, checkpoints).happened)
    assert told == happened_of_engine(fold(entries, bound, set()).happened)
    assert [(*one[:3], fingerprint(one[3]), *one[4:]) for one in told] == happened_of_verify(happened)


@given(histories(), ROW_BOUNDS, CHECKPOINTS, st.booleans())
def test_a_fold_that_tells_what_happened_leaves_the_same_rows(
    entries: list[WalEntry], bound: int, checkpoints: set[int], restart: bool
) -> None:
    telling, silent = (fold(entries, bound, checkpoints, restart=restart, tell=tell) for tell in (True, False))
    assert silent.rows == telling.rows
    assert (silent.stopped, silent.at_group_end) == (telling.stopped, telling.at_group_end)


@given(histories(), ROW_BOUNDS, CHECKPOINTS)
def test_a_fold_rebuilt_from_rows_and_mark_continues_identically(
    entries: list[WalEntry], bound: int, checkpoints: set[int]
) -> None:
    kept, rebuilt = (fold(entries, bound, checkpoints, restart=restart) for restart in (False, True))
    assert rebuilt.rows == kept.rows
    assert rebuilt.happened == kept.happened


@given(histories(), ROW_BOUNDS, CHECKPOINTS)
def test_the_state_does_not_depend_on_where_checkpoints_fall(
    entries: list[WalEntry], bound: int, checkpoints: set[int]
) -> None:
    once = fold_entries(entries, JOURNAL, 0, 1, updates_row_bytes_max=bound, checkpoint=never)
    each = fold_entries(entries, JOURNAL, 0, 1, updates_row_bytes_max=bound, checkpoint=always)
    some = fold(entries, bound, checkpoints)
    assert outcome_of_rows(once.rows, 0) == outcome_of_rows(each.rows, 0) == outcome_of_rows(some.rows, 0)
    assert [key for key in sorted(once.rows) if key[:1] != b"r"] == [
        key for key in sorted(each.rows) if key[:1] != b"r"
    ]
