"""A shard whose WAL was trimmed says to where, when, by whom, and whether an archive has what is gone."""

from __future__ import annotations

from journal.cli.status.trims import trim_json, trim_notes
from journal.v1.journal_pb2 import Trim
from tests.support.build import JOURNAL, START_MS

AN_HOUR_LATER_MS = START_MS + 3_600_000.0


def row(offset: int = 7990, *, archived: bool = True, operator: str = "eve@ops") -> Trim:
    return Trim(journal=JOURNAL, offset=offset, archived=archived, operator=operator, timestamp=START_MS)


def test_a_trimmed_shard_is_told_as_its_control_row_has_it() -> None:
    assert trim_json(row(), JOURNAL, 7990) == {
        "offset": 7990,
        "timestamp": START_MS,
        "operator": "eve@ops",
        "archived": True,
    }


def test_a_wal_with_its_beginning_was_not_trimmed_whatever_a_row_says() -> None:
    assert trim_json(None, JOURNAL, 12) is None
    assert trim_json(row(), JOURNAL, 0) is None, "killed before anything was deleted"
    assert trim_json(row(), bytes(16), 7990) is None, "of a journal that had the name before"


def test_shards_that_were_trimmed_together_are_one_line() -> None:
    rows = {0: row(), 2: row(15), 1: row(12, archived=False, operator="worker-1")}
    told = {shard: found for shard, each in rows.items() if (found := trim_json(each, JOURNAL, 7)) is not None}
    assert trim_notes(told, AN_HOUR_LATER_MS) == [
        "the WAL was trimmed 1 h ago by eve@ops: shard 0 to 7990, shard 2 to 15; an archive has what was deleted",
        "the WAL was trimmed 1 h ago by worker-1: shard 1 to 12; no archive has what was deleted",
    ]
    assert trim_notes({}, AN_HOUR_LATER_MS) == []
