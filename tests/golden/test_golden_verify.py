"""Every golden case on `verify`'s fold, and its verdict on the engine's rows."""

from __future__ import annotations

import pytest

from journal.verify import fold_shard, verify_shard
from journal.verify.state import fingerprint
from journal.verify.wal_fold import Happening
from tests.support.fold import fold_entries
from tests.support.golden import (
    Case,
    WalEntry,
    cases,
    expected_happened,
    expected_outcome,
    happened_of_verify,
    outcome_of_verify,
)

CASES = cases()


def wal_records(entries: list[WalEntry]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(entry.offset, entry.timestamp_ms, None, entry.value) for entry in entries]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verify_does_what_the_case_says(case: Case) -> None:
    for shard in range(case.shards):
        entries = list(case.wal[shard])
        skips = {entry.offset for entry in entries if entry.skip}
        happened: list[Happening] = []
        state = fold_shard(
            shard, case.shards, case.journal, wal_records(entries), skips, topic="j.wal", happened=happened.append
        )
        expected = case.expected[shard]
        assert outcome_of_verify(state) == expected_outcome(case, shard, fingerprint)
        assert happened_of_verify(happened) == expected_happened(case, shard, fingerprint)
        assert state.whole_group == expected["at_group_end"]
        if expected["stops"] is None:
            assert not state.findings
        else:
            assert [finding.offset for finding in state.findings] == [expected["stops"]["offset"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verify_agrees_with_the_engines_rows(case: Case) -> None:
    for shard in range(case.shards):
        entries = list(case.wal[shard])
        folded = fold_entries(
            entries, case.journal, shard, case.shards, updates_row_bytes_max=case.updates_row_bytes_max
        )
        report = verify_shard(
            shard,
            case.shards,
            case.journal,
            wal=wal_records(entries),
            table=folded.rows.items(),
            wal_topic="j.wal",
            rows_in_partition_order=False,
        )
        mark = case.expected[shard]["mark"]
        told = {"rejected": mark.get("rejected", 0), "skipped": mark.get("skipped", 0)}
        if not case.expected[shard]["at_group_end"]:
            told["mark"] = 1
        assert report.differences.counts == {what: count for what, count in told.items() if count}
        assert not report.findings
