"""A branch's states: every pair of them, and who works in it."""

from __future__ import annotations

import itertools

import pytest

from journal.errors import XidError
from journal.xa.branch import Branch, BranchState, valid_transition
from journal.xa.codes import XaCode
from journal.xa.xid import make_xid

ALLOWED = {
    ("ACTIVE", "IDLE"),
    ("ACTIVE", "DOOMED"),
    ("IDLE", "ACTIVE"),
    ("IDLE", "DOOMED"),
    ("IDLE", "PREPARING"),
    ("IDLE", "COMMITTING"),
    ("IDLE", "ROLLING_BACK"),
    ("IDLE", "ENDED"),
    ("DOOMED", "ROLLING_BACK"),
    ("DOOMED", "ENDED"),
    ("PREPARING", "PREPARED"),
    ("PREPARING", "IDLE"),
    ("PREPARED", "COMMITTING"),
    ("PREPARED", "ROLLING_BACK"),
    ("COMMITTING", "ENDED"),
    ("COMMITTING", "IDLE"),
    ("COMMITTING", "PREPARED"),
    ("ROLLING_BACK", "ENDED"),
    ("ROLLING_BACK", "IDLE"),
    ("ROLLING_BACK", "PREPARED"),
    ("ROLLING_BACK", "DOOMED"),
}


def branch(state: BranchState = BranchState.ACTIVE, working: int = 1) -> Branch:
    return Branch(make_xid(1, "g", "b"), state, working=working)


@pytest.mark.parametrize(("now", "then"), list(itertools.product(BranchState, repeat=2)))
def test_a_branch_changes_only_as_the_table_says(now: BranchState, then: BranchState) -> None:
    allowed = (now.name, then.name) in ALLOWED
    assert valid_transition(now, then) == allowed
    found = branch(now)
    if allowed:
        found.become(then)
        assert found.state is then
        return
    with pytest.raises(XidError) as raised:
        found.become(then)
    assert raised.value.code == XaCode.PROTO
    assert found.state is now


def test_it_is_idle_once_the_last_session_has_left() -> None:
    found = branch()
    states = []
    for change in (found.join, found.leave, found.leave, found.join):
        change()
        states.append(found.state)
    assert states == [BranchState.ACTIVE, BranchState.ACTIVE, BranchState.IDLE, BranchState.ACTIVE]


def test_nobody_leaves_or_resumes_what_nobody_works_in() -> None:
    found = branch(BranchState.IDLE, working=0)
    for call in (found.leave, found.suspend, found.resume):
        with pytest.raises(XidError):
            call()
    assert (found.state, found.working, found.suspended) == (BranchState.IDLE, 0, 0)


def test_a_doomed_branch_is_left_by_whoever_likes_and_owes_what_was_done_until_then() -> None:
    found = branch()
    found.doom(XaCode.RBTIMEOUT)
    for working in (0, 0):
        found.paid = found.debts
        assert not found.owes_rollback
        found.leave()
        assert (found.state, found.working, found.owes_rollback) == (BranchState.DOOMED, working, True)


def test_a_suspended_session_is_not_done() -> None:
    found = branch()
    found.suspend()
    assert found.state is BranchState.IDLE
    with pytest.raises(XidError) as raised:
        found.require_left()
    assert raised.value.code == XaCode.PROTO
    found.resume()
    found.leave()
    found.require_left()


@pytest.mark.parametrize("state", BranchState)
def test_only_an_unprepared_branch_times_out(state: BranchState) -> None:
    found = branch(state)
    found.deadline_ms = 5.0
    assert found.expires(5.0) == (state in (BranchState.ACTIVE, BranchState.IDLE))
    assert not found.expires(4.0)


def test_a_doomed_branch_says_why_it_is_not_willing() -> None:
    found = branch()
    found.doom(XaCode.RBTIMEOUT)
    for call in (found.require_willing, found.join):
        with pytest.raises(XidError) as raised:
            call()
        assert raised.value.code == XaCode.RBTIMEOUT
