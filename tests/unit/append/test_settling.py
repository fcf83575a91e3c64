"""Room in the queue for outcomes: what one group settles is bounded, and what is never appended needs no room."""

from __future__ import annotations

import itertools
import threading

import pytest

from journal.append.acceptance import Acceptance
from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.operations import Append
from journal.append.transactions import TransactionAppends
from journal.errors import RolledBackError
from journal.limits import OPERATION_OVERHEAD_BYTES, Limits
from journal.v1.journal_pb2 import ADD
from tests.support.cores import SHARDS, Committing, active_core


def active(limits: Limits) -> Core:
    return active_core(Committing(), limits)


def prepared(core: Core, *counts: int) -> None:
    """Transactions 1, 2 and so on, each with so many operations; in the WAL."""
    ids = itertools.count(1)
    for tx, count in enumerate(counts, 1):
        for _ in range(count):
            core.add(next(ids), 1, b"data", tx)
        core.transactions.prepare(tx, b"")
    core.step(0.0)


SIZE = len(b"data") + OPERATION_OVERHEAD_BYTES


@pytest.mark.parametrize("bound", [{"staged_operations_max": 10}, {"staged_bytes_max": 10 * SIZE}])
@pytest.mark.parametrize("settle", [TransactionAppends.commit, TransactionAppends.rollback])
def test_a_group_settles_no_more_than_the_largest_transaction_has(bound: dict[str, int], settle) -> None:
    assert settled_by_groups(Limits(**bound), settle, 4, 6, 1, 7, 7) == [10, 8, 7]


def settled_by_groups(limits: Limits, settle, *counts: int) -> list[int]:
    """Operations that each group settles, of transactions of so many operations that a load found prepared."""
    writer, ids = Committing(), itertools.count(1)
    acceptance = Acceptance(SHARDS, limits)
    for tx, count in enumerate(counts, 1):
        operations = [Append(0, ADD, next(ids) * SHARDS, 1, b"data") for _ in range(count)]
        acceptance.transactions.load_prepared(tx, operations, {0: count})
    core = active_core(writer, limits, acceptance=acceptance)
    for tx in range(1, len(counts) + 1):
        settle(core.transactions, tx)
        core.add(1000 + tx, 1, b"settles nothing")
    while not core.flush().done:
        core.step(0.0)
    return [group.settled.operations for group in writer.written]


def test_an_outcome_that_is_refused_for_what_follows_it_settles_nothing() -> None:
    core = active(Limits(staged_operations_max=10))
    prepared(core, 10, 10)
    with pytest.raises(Exception, match="no record 5000"):
        core.transactions.commit(1, [(3, 5000, 0, b"", False, 0)])
    core.transactions.commit(2)


def test_a_transaction_staged_under_wider_bounds_is_settled_alone() -> None:
    narrower = Limits(staged_operations_max=10)
    assert settled_by_groups(narrower, TransactionAppends.commit, 50, 1, 2) == [50, 3]


def test_a_rollback_of_what_is_not_in_the_wal_needs_no_room() -> None:
    core = active(Limits(queue_operations_max=100, transaction_buffer_operations_max=60))
    buffered: Completion | None = None
    for record_id in range(1, 51):
        buffered = core.add(record_id, 1, b"data", 7)
    for record_id in range(100, 200):
        core.add(record_id, 1, b"data")
    assert core.transactions.rollback(7).done
    assert buffered is not None
    with pytest.raises(RolledBackError):
        buffered.wait(0)


def test_whoever_is_told_that_a_transaction_without_effect_is_committed_may_append_at_once() -> None:
    core = active(Limits())
    core.add(1, 1, b"data", 7)
    told = core.delete(1, 7)
    appended: list[Completion] = []
    told.add_callback(lambda error: appended.append(core.add(2, 1, b"data")))
    committing = threading.Thread(target=core.transactions.commit, args=(7,), daemon=True)
    committing.start()
    committing.join(10)
    assert not committing.is_alive(), "it waits for the lock that it holds"
    core.step(0.0)
    assert appended[0].done
