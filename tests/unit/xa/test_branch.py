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


ONE, OTHER = "one session", "another"


def branch(state: BranchState = BranchState.ACTIVE, working: tuple[str, ...] = (ONE,)) -> Branch:
    return Branch(make_xid(1, "g", "b"), state, working=set(working))


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


def test_a_branch_is_idle_once_the_last_session_has_left() -> None:
    found = branch()
    states = []
    for change, session in ((found.join, OTHER), (found.end, ONE), (found.end, OTHER), (found.join, ONE)):
        change(session)
        states.append(found.state)
    assert states == [BranchState.ACTIVE, BranchState.ACTIVE, BranchState.IDLE, BranchState.ACTIVE]


@pytest.mark.parametrize("state", [BranchState.IDLE, BranchState.ACTIVE, BranchState.DOOMED])
def test_a_session_ends_suspends_and_resumes_no_work_but_its_own(state: BranchState) -> None:
    found = branch(state, working=() if state is BranchState.IDLE else (ONE,))
    before = set(found.working)
    for call in (found.end, found.suspend, found.resume):
        with pytest.raises(XidError) as raised:
            call(OTHER)
        assert raised.value.code == XaCode.PROTO
    assert (found.state, found.working, found.suspended, found.debts) == (state, before, set(), 0)


def test_a_session_joins_what_it_works_in_or_has_suspended_no_second_time() -> None:
    found = branch()
    for words in ("at work already", "resume it"):
        with pytest.raises(XidError, match=words) as raised:
            found.join(ONE)
        assert raised.value.code == XaCode.PROTO
        if ONE in found.working:
            found.suspend(ONE)
    assert (found.working, found.suspended) == (set(), {ONE})


def test_a_doomed_branch_owes_what_was_done_until_each_session_has_ended() -> None:
    found = branch(working=(ONE, OTHER))
    found.doom(XaCode.RBTIMEOUT)
    for session in (ONE, OTHER):
        found.paid = found.debts
        assert not found.owes_rollback
        found.end(session)
        assert (found.state, session in found.working, found.owes_rollback) == (BranchState.DOOMED, False, True)


def test_work_that_is_suspended_when_its_branch_is_doomed_has_ended_and_says_so() -> None:
    found = branch()
    found.doom(XaCode.RBTIMEOUT)
    with pytest.raises(XidError) as raised:
        found.suspend(ONE)
    assert raised.value.code == XaCode.RBTIMEOUT
    assert (found.working, found.suspended) == (set(), set())


def test_a_suspended_session_is_not_done() -> None:
    found = branch()
    found.suspend(ONE)
    assert found.state is BranchState.IDLE
    with pytest.raises(XidError) as raised:
        found.require_left()
    assert raised.value.code == XaCode.PROTO
    found.resume(ONE)
    found.end(ONE)
    found.require_left()


def test_a_suspended_session_ends_its_work_without_coming_back_to_it() -> None:
    found = branch()
    found.suspend(ONE)
    found.end(ONE)
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
    for call in (found.require_willing, lambda: found.join(OTHER)):
        with pytest.raises(XidError) as raised:
            call()
        assert raised.value.code == XaCode.RBTIMEOUT
