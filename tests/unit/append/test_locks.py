"""Locks of open and prepared transactions."""

from __future__ import annotations

import pytest

from journal.append.locks import Locks
from journal.errors import LockedError


def test_a_record_locked_by_one_transaction_refuses_every_other():
    locks = Locks()
    locks.take_record(1, 7)
    locks.check_record(1, 7)
    with pytest.raises(LockedError, match="record 1 is locked by transaction 7"):
        locks.check_record(1, 8)
    with pytest.raises(LockedError, match="record 1 is locked by transaction 7"):
        locks.check_record(1, 0)
    with pytest.raises(LockedError, match="record 1 is locked by transaction 7"):
        locks.check_update(1, 3, 0, 0)


def test_updates_of_different_subjects_do_not_meet():
    locks = Locks()
    locks.take_update(1, 3, 5, 7)
    locks.check_update(1, 3, 6, 8)
    locks.check_update(1, 4, 5, 8)
    with pytest.raises(LockedError, match="kind 3 and subject 5"):
        locks.check_update(1, 3, 5, 8)


def test_a_delete_needs_all_update_locks_of_its_record():
    locks = Locks()
    locks.take_update(1, 3, 5, 7)
    locks.check_record(1, 7)
    with pytest.raises(LockedError, match="transaction 7"):
        locks.check_record(1, 0)


def test_release_gives_back_what_a_transaction_holds_and_nothing_else():
    locks = Locks()
    locks.take_record(1, 7)
    locks.take_update(2, 3, 0, 7)
    locks.take_update(2, 3, 1, 8)
    locks.release(7)
    assert len(locks) == 1
    locks.check_record(1, 9)
    locks.check_update(2, 3, 0, 9)
    with pytest.raises(LockedError, match="transaction 8"):
        locks.check_update(2, 3, 1, 9)
    locks.release(8)
    assert len(locks) == 0
