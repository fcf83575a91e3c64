"""Every golden case on the engine: its rows, what happened and where it stops, wherever checkpoints fall."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fold import Folded, always, fold_entries, never
from tests.support.golden import (
    Case,
    cases,
    expected_happened,
    expected_outcome,
    happened_of_engine,
    outcome_of_rows,
)

CASES = cases()


def as_it_is(data: bytes) -> bytes:
    return data


def fold_case(case: Case, shard: int, checkpoint: Callable[[int], bool], restart: bool) -> Folded:
    return fold_entries(
        case.wal[shard],
        case.journal,
        shard,
        case.shards,
        updates_row_bytes_max=case.updates_row_bytes_max,
        checkpoint=checkpoint,
        restart=restart,
    )


@pytest.mark.parametrize(
    ("checkpoint", "restart"),
    [(never, False), (always, False), (always, True)],
    ids=["one-checkpoint", "checkpoint-after-every-frame", "restart-after-every-frame"],
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_engine_does_what_the_case_says(case: Case, checkpoint: Callable[[int], bool], restart: bool) -> None:
    for shard in range(case.shards):
        folded = fold_case(case, shard, checkpoint, restart)
        expected = case.expected[shard]
        assert outcome_of_rows(folded.rows, shard) == expected_outcome(case, shard, as_it_is)
        assert happened_of_engine(folded.happened) == expected_happened(case, shard, as_it_is)
        assert folded.stopped == ((stop["offset"], stop["why"]) if (stop := expected["stops"]) else None)
        assert folded.at_group_end == expected["at_group_end"]


def test_there_are_cases_for_every_operation() -> None:
    said = {operation["op"] for case in CASES for shard in case.expected.values() for operation in shard["happened"]}
    assert said == {"add", "update", "delete"}
    assert len(CASES) >= 40
