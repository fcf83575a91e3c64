"""Journal tables are gone on with by one job at a time, of their journal, that has not missed anything."""

from __future__ import annotations

import json

import pytest

from journal.errors import ConfigError
from loaders.spark.read.source import JournalIdentity
from loaders.spark.stored.files import Files
from loaders.spark.stored.table_stores import TableFormat
from loaders.spark.tables.tables_place import ALL_TABLES, TablesPlace
from tests.support.spark.files import FilesInMemory

JOURNAL = JournalIdentity(b"j" * 16, 3)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
BEGUN = "batches/000000000000.begun"
DONE = "batches/000000000000.json"
FIRST = json.dumps({"batch": 0, "begin": {}, "end": {}, "tables": {}})


def place(files: Files, now_ms: int = NOW_MS) -> TablesPlace:
    return TablesPlace(files, "/tables", now_ms=now_ms)


def opened(files: Files, now_ms: int = NOW_MS, *, kept_as: TableFormat = TableFormat.DELTA) -> TablesPlace:
    found = place(files, now_ms)
    found.open("orders", JOURNAL, kept_as, RETENTION_MS)
    return found


def begun() -> FilesInMemory:
    """By a job that has read something."""
    files = FilesInMemory()
    opened(files)
    files.texts[BEGUN] = ""
    return files


# ---- whose it is -------------------------------------------------------------------------------------------


def test_a_place_of_other_things_another_journal_or_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="keep the tables elsewhere"):
        opened(FilesInMemory("a file"))
    with pytest.raises(ConfigError, match="in format delta: go on with --format delta"):
        opened(begun(), kept_as=TableFormat.PARQUET)
    with pytest.raises(ConfigError, match="the tables of journal orders with uuid 6a6a"):
        place(begun()).open("orders", JournalIdentity(b"o" * 16, 3), TableFormat.DELTA, None)
    files = begun()
    files.texts["journal.json"] = json.dumps({"format": 9})
    with pytest.raises(ConfigError, match="of format 9"):
        opened(files)


@pytest.mark.parametrize("text", ["", "\0" * 20, '{"for', "[]", "{}"])
def test_a_description_that_a_power_cut_left_empty_is_told_with_what_mends_it(text: str) -> None:
    files = begun()
    files.texts["journal.json"] = text
    with pytest.raises(ConfigError, match=r"/tables/journal\.json is empty or damaged.* delete /tables/ and keep"):
        opened(files)


def test_what_a_job_leaves_that_was_killed_in_its_first_moment_is_gone_on_with() -> None:
    """Before the description had its name; before it was written which offsets the first batch has."""
    files = FilesInMemory(".journal.json.0a1b2c3d")
    assert place(files).open("orders", JOURNAL, TableFormat.DELTA, RETENTION_MS) is False
    files.texts |= {"batches/.0.begun.tmp": ""}
    assert place(files).open("orders", JOURNAL, TableFormat.DELTA, RETENTION_MS) is False
    files.texts[BEGUN] = ""
    assert place(files).open("orders", JOURNAL, TableFormat.DELTA, RETENTION_MS) is True


def test_tables_that_do_not_say_where_to_go_on_are_not_gone_on_with() -> None:
    files = begun()
    del files.texts[BEGUN]
    files.texts |= {"progress/0": "", "batches/.0.begun.tmp": ""}
    with pytest.raises(ConfigError, match="no batches that say where to go on"):
        opened(files)


def test_batches_without_their_tables_are_not_gone_on_with() -> None:
    """They would be begun anew in the middle of the journal. Of a first batch that was cut off some may be there."""
    files = FilesInMemory()
    opened(files)
    files.texts |= {BEGUN: "", f"{ALL_TABLES[0]}/0": ""}
    opened(files)
    files.texts |= {f"{table}/0": "" for table in ALL_TABLES} | {DONE: FIRST}
    opened(files)
    for table in ALL_TABLES:
        del files.texts[f"{table}/0"]
        with pytest.raises(ConfigError, match=rf"has batches, and .* are gone \({table}\)"):
            opened(files)
        files.texts[f"{table}/0"] = ""


# ---- up to when it has everything --------------------------------------------------------------------------


def test_a_job_that_lagged_and_was_away_has_missed_deletions_when_both_are_too_long_together() -> None:
    files = begun()
    lagging = opened(files, NOW_MS + 6 * DAY_MS)
    lagging.has_all_until(NOW_MS + DAY_MS)  # five days behind
    opened(files, NOW_MS + 7 * DAY_MS)
    with pytest.raises(ConfigError, match="168 hours ago, and deletions may be gone"):
        opened(files, NOW_MS + 8 * DAY_MS)
    assert place(files, NOW_MS + 9 * DAY_MS).open("orders", JOURNAL, TableFormat.DELTA, None), "nothing to go by"


def test_a_place_that_does_not_say_up_to_when_it_has_everything_is_refused() -> None:
    files = begun()
    (until,) = files.names("until")
    files.texts = {name: text for name, text in files.texts.items() if name != f"until/{until}"} | {"seen": ""}
    with pytest.raises(ConfigError, match="does not say up to when"):
        opened(files)


def test_what_a_kill_leaves_behind_of_a_new_moment_changes_nothing() -> None:
    """Before the new file has its name; before the older one is deleted."""
    files = begun()
    job = opened(files, NOW_MS + 6 * DAY_MS)
    files.texts["until/.000009999999999-x.1a"] = ""
    job.has_all_until(NOW_MS + DAY_MS)
    files.texts[f"until/{NOW_MS:015d}-000000000000-older"] = ""
    opened(files, NOW_MS + 7 * DAY_MS)


def test_rows_that_are_older_than_the_tables_are_read_while_their_deletions_are_there() -> None:
    """A journal that was at rest for a month: the tombstone of what was read today stays for a week from today."""
    files = begun()
    first = opened(files, NOW_MS + DAY_MS)
    first.has_all_until(NOW_MS - 30 * DAY_MS)
    opened(files, NOW_MS + 6 * DAY_MS)
    with pytest.raises(ConfigError, match="deletions may be gone"):
        opened(files, NOW_MS + 7 * DAY_MS)


def test_tables_of_which_nothing_was_read_are_not_away() -> None:
    files = FilesInMemory()
    opened(files)
    opened(files, NOW_MS + 100 * DAY_MS)
    files.texts[BEGUN] = ""
    opened(files, NOW_MS + 106 * DAY_MS)


def test_tables_that_are_older_than_what_they_are_said_to_have_are_refused() -> None:
    """They were put back from a backup, and up to when they have everything was not."""
    files = begun()
    job = opened(files, NOW_MS)
    files.texts |= {DONE: FIRST} | {f"{table}/0": "" for table in ALL_TABLES}
    job.has_all_until(NOW_MS + 1)
    opened(files)
    del files.texts[DONE]
    with pytest.raises(ConfigError, match="until is of 1 batches, and /tables/batches has 0"):
        opened(files)


# ---- who keeps it ------------------------------------------------------------------------------------------


def test_the_job_that_was_started_last_keeps_the_tables() -> None:
    files = FilesInMemory()
    first, second = opened(files), opened(files)
    first.take()
    first.require()
    second.take()
    assert second.is_taken() is False
    with pytest.raises(ConfigError, match="another job keeps the tables below /tables now"):
        first.require()
    (writer,) = files.names("writers")
    del files.texts[f"writers/{writer}"]
    assert second.is_taken(), "they were deleted under it"


def test_one_of_two_jobs_that_are_started_at_once_keeps_the_tables() -> None:
    files = FilesInMemory()
    jobs = [opened(files), opened(files)]
    seen = files.names
    files.names = lambda directory: [] if directory == "writers" else seen(directory)  # type: ignore[method-assign]
    for job in jobs:
        job.take()
    files.names = seen  # type: ignore[method-assign]
    assert sorted(job.is_taken() for job in jobs) == [False, True]
