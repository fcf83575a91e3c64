"""What the active node may append, and what that appends."""

from __future__ import annotations

import pytest

from journal.append.acceptance import Acceptance
from journal.append.operations import Append
from journal.errors import (
    FullError,
    InvalidOperationError,
    JournalError,
    LockedError,
    RecordExistsError,
    RecordMissingError,
    TransactionPreparedError,
    TransactionUnknownError,
)
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, PREPARE, ROLLBACK, UPDATE
from journal.wire.ids import home_shard_of, shard_of

SHARDS = 4


def new(**limits: int) -> Acceptance:
    return Acceptance(SHARDS, Limits(**limits))


def add(record_id: int, tx: int) -> Append:
    return Append(shard_of(record_id, SHARDS), ADD, record_id, 1, b"data", tx=tx)


def update(record_id: int, tx: int, subject: int = 0) -> Append:
    return Append(shard_of(record_id, SHARDS), UPDATE, record_id, 2, b"more", subject=subject, tx=tx)


def delete(record_id: int, tx: int) -> Append:
    return Append(shard_of(record_id, SHARDS), DELETE, record_id, tx=tx)


# ---- records ---------------------------------------------------------------------------------------------------------


def test_an_add_of_an_id_that_is_there_is_refused():
    accept = new()
    accept.add(1)
    with pytest.raises(RecordExistsError):
        accept.add(1)


@pytest.mark.parametrize("operate", [lambda accept: accept.update(1, 2, 0), lambda accept: accept.delete(1)])
def test_an_update_or_delete_of_an_id_that_is_not_there_is_refused(operate):
    with pytest.raises(RecordMissingError):
        operate(new())


def test_a_deleted_id_may_be_added_again():
    accept = new()
    accept.add(1)
    accept.delete(1)
    accept.add(1)
    assert 1 in accept


@pytest.mark.parametrize(
    ("record_id", "kind", "size", "subject"),
    [(0, 0, 0, 0), (-1, 0, 0, 0), (2**63, 0, 0, 0), (1, 256, 0, 0), (1, -1, 0, 0), (1, 0, 11, 0), (1, 0, 0, -1)],
)
def test_arguments_out_of_range_are_refused(record_id, kind, size, subject):
    with pytest.raises(InvalidOperationError):
        new(data_bytes_max=10).check(record_id, kind, b"x" * size, subject)


def test_data_of_exactly_the_limit_is_accepted():
    new(data_bytes_max=10).check(1, 0, b"x" * 10, 0)


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_a_local_transaction_appends_nothing_until_it_commits_and_then_plain_operations():
    accept = new()
    assert accept.transactions.operate([add(1, 7)]) == []
    assert accept.transactions.operate([update(1, 7)]) == []
    assert 1 not in accept
    assert accept.transactions.commit(7) == [add(1, 0), update(1, 0)]
    assert 1 in accept


def test_what_a_transaction_both_adds_and_deletes_is_not_appended():
    accept = new()
    for op in (add(1, 7), update(1, 7), add(2, 7), delete(1, 7)):
        accept.transactions.operate([op])
    assert accept.transactions.commit(7) == [add(2, 0)]
    assert 1 not in accept


def test_a_record_deleted_and_added_again_in_one_transaction_lives_after_it():
    accept = new()
    accept.add(1)
    accept.transactions.operate([delete(1, 7)])
    accept.transactions.operate([add(1, 7)])
    assert accept.transactions.commit(7) == [delete(1, 0), add(1, 0)]
    assert 1 in accept


def test_a_rolled_back_buffered_transaction_appends_nothing_and_frees_its_locks():
    accept = new()
    accept.transactions.operate([add(1, 7)])
    assert accept.transactions.rollback(7) == []
    accept.add(1)


def test_a_transaction_that_outgrows_its_buffer_is_staged_and_its_commit_covers_every_operation():
    accept = new(transaction_buffer_operations_max=2)
    assert accept.transactions.operate([add(1, 7)]) == []
    assert accept.transactions.operate([add(2, 7)]) == []
    assert accept.transactions.operate([add(5, 7)]) == [add(1, 7), add(2, 7), add(5, 7)]
    assert accept.transactions.operate([add(3, 7)]) == [add(3, 7)]
    settled = accept.transactions.commit(7)
    assert [(op.shard, op.type, op.covers) for op in settled] == [(1, COMMIT, 2), (2, COMMIT, 1), (3, COMMIT, 1)]


def test_operations_of_a_transaction_that_belong_together_are_all_taken_or_none():
    accept = new(staged_operations_max=4)
    accept.add(1)
    accept.transactions.operate([add(2, 7)])
    for refused, error in (
        ([add(3, 7), add(3, 7)], RecordExistsError),
        ([delete(1, 7), update(1, 7)], RecordMissingError),
        ([add(3, 7), delete(3, 7), update(3, 7)], RecordMissingError),
        ([add(3, 7), update(3, 7), update(2, 7), update(1, 7)], FullError),
    ):
        with pytest.raises(error):
            accept.transactions.operate(refused)
    with pytest.raises(RecordExistsError):
        accept.transactions.operate([add(3, 8), add(1, 8)])
    assert not accept.transactions.is_open(8)
    accept.update(1, 0, 0)
    accept.add(3)
    assert accept.transactions.operate([update(2, 7), delete(1, 7), add(1, 7)]) == []
    assert accept.transactions.commit(7) == [add(2, 0), update(2, 0), delete(1, 0), add(1, 0)]


def test_operations_that_belong_together_and_outgrow_the_buffer_are_staged_together():
    accept = new(transaction_buffer_operations_max=2)
    assert accept.transactions.operate([add(1, 7)]) == []
    assert accept.transactions.operate([add(2, 7), add(5, 7)]) == [add(1, 7), add(2, 7), add(5, 7)]
    assert accept.transactions.operate([add(3, 7), add(6, 7)]) == [add(3, 7), add(6, 7)]


def test_prepare_stages_everything_and_covers_every_shard_and_the_home_shard():
    accept = new()
    accept.transactions.operate([add(1, 7)])
    accept.transactions.operate([add(2, 7)])
    appends = accept.transactions.prepare(7, b"xid")
    assert appends[:2] == [add(1, 7), add(2, 7)]
    assert home_shard_of(7, SHARDS) == 3
    assert [(op.shard, op.type, op.covers, op.data, op.shards) for op in appends[2:]] == [
        (1, PREPARE, 1, b"", 3),
        (2, PREPARE, 1, b"", 3),
        (3, PREPARE, 0, b"xid", 3),
    ]
    assert [(op.shard, op.type, op.covers) for op in accept.transactions.rollback(7)] == [
        (1, ROLLBACK, 1),
        (2, ROLLBACK, 1),
        (3, ROLLBACK, 0),
    ]


def test_an_empty_transaction_can_be_prepared_and_settled():
    accept = new()
    assert [(op.shard, op.covers) for op in accept.transactions.prepare(7, b"")] == [(3, 0)]
    assert accept.transactions.prepared() == [7]
    assert [(op.shard, op.type, op.covers) for op in accept.transactions.commit(7)] == [(3, COMMIT, 0)]


def test_what_follows_a_prepare_takes_effect_at_once_or_nothing_is_prepared():
    accept = new()
    accept.add(3)
    accept.transactions.operate([add(1, 7)])
    then = [(UPDATE, 3, 2, b"kept", True, 7), (ADD, 4, 1, b"", False, 0), (DELETE, 3, 0, b"", False, 0)]
    for refused in ((ADD, 1, 1, b"", False, 0), (UPDATE, 9, 2, b"", False, 0), (PREPARE, 4, 0, b"", False, 0)):
        for tx in (7, 8):
            with pytest.raises((LockedError, RecordMissingError, InvalidOperationError)):
                accept.transactions.prepare(tx, b"", [*then, refused])
    assert (
        3 in accept,
        4 in accept,
        accept.transactions.prepared(),
        accept.transactions.is_open(8),
    ) == (True, False, [], False)
    appends = accept.transactions.prepare(7, b"xid", then)
    assert [(op.type, op.tx) for op in appends] == [
        (ADD, 7),
        (PREPARE, 7),
        (PREPARE, 7),
        (UPDATE, 0),
        (ADD, 0),
        (DELETE, 0),
    ]
    assert appends[3] == Append(shard_of(3, SHARDS), UPDATE, 3, 2, b"kept", True, 7)
    assert (3 in accept, 4 in accept, accept.transactions.prepared()) == (False, True, [7])
    accept.transactions.rollback(7)
    assert (3 in accept, 4 in accept) == (False, True)


def test_nothing_is_added_to_a_prepared_transaction():
    accept = new()
    accept.transactions.prepare(7, b"")
    with pytest.raises(TransactionPreparedError):
        accept.transactions.operate([add(1, 7)])
    with pytest.raises(TransactionPreparedError):
        accept.transactions.prepare(7, b"")


@pytest.mark.parametrize(
    "settle", [lambda accept: accept.transactions.commit(7), lambda accept: accept.transactions.rollback(7)]
)
def test_an_unknown_transaction_cannot_be_settled(settle):
    with pytest.raises(TransactionUnknownError):
        settle(new())


def test_what_another_open_transaction_added_is_not_there_and_is_locked():
    accept = new()
    accept.transactions.operate([add(1, 7)])
    with pytest.raises(RecordMissingError):
        accept.transactions.operate([update(1, 8)])
    with pytest.raises(LockedError):
        accept.transactions.operate([add(1, 8)])
    with pytest.raises(LockedError):
        accept.add(1)


def test_a_record_deleted_by_an_open_transaction_is_locked_for_all_others():
    accept = new()
    accept.add(1)
    accept.transactions.operate([delete(1, 7)])
    with pytest.raises(LockedError):
        accept.update(1, 2, 0)
    with pytest.raises(LockedError):
        accept.delete(1)
    accept.transactions.rollback(7)
    accept.delete(1)


def test_a_refused_first_operation_begins_no_transaction():
    accept = new()
    with pytest.raises(RecordMissingError):
        accept.transactions.operate([update(1, 7)])
    assert not accept.transactions.is_open(7)


def test_staged_operations_are_bounded_for_one_transaction_and_in_all():
    accept = new(staged_operations_max=2, staged_total_operations_max=3)
    accept.transactions.operate([add(1, 7)])
    accept.transactions.operate([add(2, 7)])
    with pytest.raises(FullError, match="transaction 7 is at its limit"):
        accept.transactions.operate([add(3, 7)])
    accept.transactions.prepare(7, b"")
    accept.transactions.operate([add(3, 8)])
    with pytest.raises(FullError, match="settle some"):
        accept.transactions.operate([add(4, 8)])
    accept.transactions.commit(7)
    accept.transactions.operate([add(4, 8)])


def test_a_prepare_that_would_stage_more_than_there_may_be_in_all_is_refused_and_changes_nothing():
    accept = new(staged_operations_max=4, staged_total_operations_max=5)
    for record_id in range(1, 9):
        accept.transactions.operate([add(record_id, 7 if record_id <= 4 else 8)])
    accept.transactions.prepare(7, b"")
    with pytest.raises(FullError, match="settle some"):
        accept.transactions.prepare(8, b"", [(ADD, 9, 1, b"", False, 0)])
    assert accept.transactions.prepared() == [7]
    assert 9 not in accept
    accept.transactions.rollback(7)
    assert len([op for op in accept.transactions.prepare(8, b"") if op.type == ADD]) == 4


def test_the_bytes_that_a_prepare_stages_are_bounded_in_all():
    size = add(1, 7).size
    accept = new(staged_bytes_max=4 * size, staged_total_bytes_max=5 * size)
    for record_id in range(1, 9):
        accept.transactions.operate([add(record_id, 7 if record_id <= 4 else 8)])
    accept.transactions.prepare(7, b"")
    with pytest.raises(FullError, match="settle some"):
        accept.transactions.prepare(8, b"")


def test_what_local_transactions_hold_in_memory_is_bounded_in_all():
    size = add(1, 7).size
    accept = new(transaction_buffer_bytes_max=3 * size, transaction_buffers_total_bytes_max=4 * size)
    assert not [op for record_id in (1, 2, 3) for op in accept.transactions.operate([add(record_id, 7)])]
    assert accept.transactions.operate([add(4, 8)]) == []
    assert accept.transactions.operate([add(5, 8)]) == [add(4, 8), add(5, 8)]
    accept.transactions.commit(7)
    assert not [op for record_id in (6, 7, 8) for op in accept.transactions.operate([add(record_id, 9)])]
    accept.transactions.rollback(9)
    assert not [op for record_id in (6, 7, 8) for op in accept.transactions.operate([add(record_id, 10)])]
    accept.transactions.prepare(10, b"")
    assert not [op for record_id in (10, 11, 12) for op in accept.transactions.operate([add(record_id, 11)])]


def test_open_transactions_are_bounded():
    accept = new(transactions_max=1)
    accept.transactions.begin(7)
    with pytest.raises(FullError):
        accept.transactions.begin(8)


def test_a_loaded_prepared_transaction_holds_its_locks_and_is_settled_with_its_covers():
    accept = new()
    accept.load_records([1, 2])
    accept.transactions.load_prepared(7, [delete(1, 7), add(5, 7)], {1: 2, 3: 0})
    with pytest.raises(LockedError):
        accept.delete(1)
    with pytest.raises(LockedError):
        accept.add(5)
    assert [(op.shard, op.covers) for op in accept.transactions.commit(7)] == [(1, 2), (3, 0)]
    assert 1 not in accept
    assert 5 in accept


def test_a_refusal_changes_nothing():
    accept = new()
    accept.add(1)
    accept.transactions.operate([delete(1, 7)])
    for refused in (
        lambda: accept.add(1),
        lambda: accept.delete(1),
        lambda: accept.transactions.operate([add(1, 8)]),
    ):
        with pytest.raises(JournalError):
            refused()
    assert accept.transactions.commit(7) == [delete(1, 0)]
    accept.add(1)
