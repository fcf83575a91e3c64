"""Transactions over several shards in one of which an operator has skipped the PREPARE, COMMIT or ROLLBACK."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from journal.append.acceptance import Acceptance
from journal.cli.operations.in_doubt import in_doubt, summary
from journal.errors import LockedError, RowError
from journal.fold.engine import Fold
from journal.limits import Limits
from journal.load.accepted_load import load_with_acceptance
from journal.v1.journal_pb2 import COMMIT, ROLLBACK, Mark, Operation
from tests.support.build import DictBase, add, commit, marker, prepare, rollback, skipped, wal
from tests.support.in_process import Collected

SHARDS = 2
TX = 7 << 10 | 1
HERE, THERE = 1 << 10, 1 << 10 | 1
"""Ids of shard 0 and of shard 1, which is the transaction's home."""


def fold_shard(base: DictBase, shard: int, *groups: Sequence[Operation], skip: int | None = None) -> Mark:
    """Fold a shard's groups into its rows, but skip the one at place `skip`; returns the mark."""
    fold = Fold(Mark(shard=shard, offset=-1), base, updates_row_bytes_max=4096)
    for place, (offset, timestamp, frame) in enumerate(wal([marker()], *groups)):
        if place == skip:
            fold.skip(skipped(offset, shard=shard), timestamp, frame)
        else:
            fold.apply(offset, timestamp, frame)
    base.write(fold.changes())
    return fold.mark


def loaded(base: DictBase, *marks: Mark) -> tuple[Collected, Acceptance]:
    loader = Collected()
    by_shard = {mark.shard: mark for mark in marks}
    acceptance, _ = load_with_acceptance(base, by_shard, loader, Limits(), lambda done, total: None)
    return loader, acceptance


def prepared_in(shard: int) -> list[Operation]:
    id, data = (HERE, b"") if shard == 0 else (THERE, b"xid")
    return [add(id, tx=TX), prepare(TX, 1, data, shards=SHARDS)]


@pytest.mark.parametrize(("settle", "type_"), [(commit, COMMIT), (rollback, ROLLBACK)], ids=["commit", "rollback"])
@pytest.mark.parametrize("shard", [0, 1], ids=["of_another_shard", "of_its_home"])
def test_a_transaction_whose_settlement_was_skipped_in_a_shard_is_in_doubt_and_can_be_settled(
    settle: Callable[[int, int], Operation], type_: int, shard: int, caplog: pytest.LogCaptureFixture
) -> None:
    base = DictBase()
    marks = [
        fold_shard(base, each, prepared_in(each), [settle(TX, 1)], skip=2 if each == shard else None)
        for each in range(SHARDS)
    ]
    loader, acceptance = loaded(base, *marks)
    left = HERE if shard == 0 else THERE
    assert acceptance.transactions.prepared() == [TX]
    assert {tx: [op.id for op in operations] for tx, (_, operations) in loader.in_doubt.items()} == {TX: [left]}
    assert f"is left in shard {shard}, as something was skipped" in caplog.text
    with pytest.raises(LockedError):
        acceptance.add(left)
    appends = acceptance.transactions.commit(TX) if type_ == COMMIT else acceptance.transactions.rollback(TX)
    assert [(one.shard, one.type, one.covers) for one in appends] == [(shard, type_, 1)]


def test_a_transaction_whose_prepare_was_skipped_in_a_shard_is_in_doubt_with_its_other_parts() -> None:
    base = DictBase()
    marks = fold_shard(base, 0, prepared_in(0)), fold_shard(base, 1, prepared_in(1), skip=1)
    loader, _ = loaded(base, *marks)
    assert {tx: (data, len(operations)) for tx, (data, operations) in loader.in_doubt.items()} == {TX: (b"", 1)}


def test_a_transaction_in_doubt_names_the_shards_with_parts_and_how_many_there_were() -> None:
    base = DictBase()
    for shard in range(SHARDS):
        fold_shard(base, shard, prepared_in(shard), [commit(TX, 1)], skip=2 if shard == 1 else None)
    (found,) = in_doubt(base)
    line = summary(found, 0.0)
    assert (line["shards"], line["prepared_in"]) == ([1], 2)


def test_a_part_that_is_missing_although_nothing_was_skipped_is_an_error() -> None:
    base = DictBase()
    marks = fold_shard(base, 0, prepared_in(0)), fold_shard(base, 1, prepared_in(1), [commit(TX, 1)])
    with pytest.raises(RowError, match="is prepared in 2 shards and found in 1"):
        loaded(base, *marks)
