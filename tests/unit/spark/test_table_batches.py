"""A batch of journal tables is known by its offsets, and one that was cut off is done again with the same ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from journal.errors import ConfigError
from loaders.spark.stored.table_batches import BatchLog, TableBatch
from tests.support.spark.files import FilesInMemory


def ends(wal: int, table: int) -> dict[str, dict[int, int]]:
    return {"j.wal": {0: wal}, "j.table": {0: table}}


FIRST, SECOND, THIRD = (
    TableBatch(number, ends(*begin), ends(*end))
    for number, begin, end in ((0, (-2, -2), (5, 3)), (1, (5, 3), (8, 3)), (2, (8, 3), (9, 9)))
)


def log_of(*batches: TableBatch) -> tuple[FilesInMemory, BatchLog]:
    """A log in which these were done."""
    files = FilesInMemory()
    log = BatchLog(files)
    for batch in batches:
        log.begin(batch)
        log.commit(batch)
    return files, log


def test_the_newest_batch_says_where_the_next_one_begins() -> None:
    _, log = log_of()
    assert (log.is_begun(), log.newest(), log.cut_off()) == (False, None, None)
    _, log = log_of(FIRST, SECOND)
    assert (log.is_begun(), log.newest(), log.cut_off()) == (True, SECOND, None)


def test_a_batch_that_was_cut_off_is_begun_once_and_goes_where_it_was_to_go() -> None:
    files, log = log_of(FIRST)
    log.begin(SECOND)
    assert log.cut_off() == SECOND
    log.begin(SECOND)
    snapshot = replace(SECOND, tables={"rows": "rows/1-a"})
    log.commit(snapshot)
    assert (log.newest(), log.cut_off(), log.kept()) == (snapshot, None, [FIRST, snapshot])
    files.texts["batches/.000000000009.begun.1a"] = ""
    assert log.cut_off() is None, "what a kill leaves that came before the file had its name"


@pytest.mark.parametrize("text", ["", "\0" * 20, '{"bat', "{}"])
def test_a_batch_that_a_power_cut_left_empty_is_told_with_what_mends_it(text: str) -> None:
    files, log = log_of(FIRST, SECOND)
    files.texts["batches/000000000001.json"] = text
    with pytest.raises(ConfigError, match=r"/tables/batches/000000000001\.json is empty or damaged.* delete"):
        log.newest()


def test_only_the_newest_two_batches_are_kept() -> None:
    files, log = log_of(FIRST, SECOND, THIRD)
    assert log.kept() == [SECOND, THIRD]
    assert files.names("batches") == ["000000000001.json", "000000000002.begun", "000000000002.json"]


def test_a_batch_that_does_not_begin_where_the_newest_one_ends_is_refused_with_both_positions() -> None:
    """The one or the other was put back from a backup."""
    _, log = log_of(FIRST)
    log.begin(THIRD)
    with pytest.raises(ConfigError, match=r"batch 0 ends at j\.wal\[0\]@5, .* batch 2 begins at j\.wal\[0\]@8"):
        log.cut_off()


def test_a_job_that_was_overtaken_forgets_nothing_of_what_the_other_one_has() -> None:
    _, log = log_of(FIRST, SECOND, THIRD)
    with pytest.raises(ConfigError, match="another job has gone on"):
        log.commit(FIRST)
    assert log.kept() == [SECOND, THIRD]
