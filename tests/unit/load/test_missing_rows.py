"""A count notices every row that a table lacks, also those whose numbers no mark has."""

from __future__ import annotations

import pytest

from journal.errors import CountError, RowError
from journal.fold.engine import Fold
from journal.load.loading import require_counted
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import spilled_replaceable_key, transaction_key, updates_key
from tests.support.build import DictBase, add, marker, prepare, replace, update, wal

ROW_BYTES_MAX = 80
OPEN, PREPARED = 5, 6


def filled() -> tuple[DictBase, Mark]:
    """A table with every type of row that a count looks at, and its mark."""
    base = DictBase()
    fold = Fold(Mark(offset=-1), base, updates_row_bytes_max=ROW_BYTES_MAX)
    groups = [
        [marker()],
        [add(1), add(2), add(3), add(OPEN, tx=OPEN), add(PREPARED, tx=PREPARED), prepare(PREPARED, covers=1)],
        [update(1, b"fits"), update(2, b"spills" * 20), replace(3, b"spills too" * 20, subject=7)],
    ]
    for offset, timestamp, frame in wal(*groups):
        fold.apply(offset, timestamp, frame)
    base.rows.update((key, value) for key, value in fold.changes() if value is not None)
    return base, fold.mark


def test_a_table_that_has_all_its_rows_is_counted() -> None:
    base, mark = filled()
    require_counted(base, {0: mark})
    assert {updates_key(2), spilled_replaceable_key(3, 2, 7), transaction_key(OPEN, 0)} <= base.rows.keys()


def test_a_row_that_is_missing_is_noticed_whichever_it_is() -> None:
    base, mark = filled()
    rows = [key for key in base.rows if not key.startswith(b"m")]
    for key in rows:
        value = base.rows.pop(key)
        with pytest.raises((CountError, RowError)):
            require_counted(base, {0: mark})
        base.rows[key] = value
    assert len(rows) == 12
