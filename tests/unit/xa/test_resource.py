"""X/Open's rules: what a resource does with branches, what it refuses, and with which code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from journal.errors import (
    ClosedError,
    DeadlineError,
    FullError,
    InvalidOperationError,
    JournalError,
    StateError,
    TransactionUnknownError,
    XidError,
)
from journal.xa.branch import BranchState, Vote
from journal.xa.codes import XaCode
from journal.xa.outcomes import COMMITTED, HEURISTIC_COMMIT, HEURISTIC_ROLLBACK
from journal.xa.resource import WARNINGS_MAX, XaResource
from journal.xa.xid import AnyXid, Xid, make_xid
from tests.support.xa import MESSAGE_KIND, START_MS, Crash, MemoryJournal, MemoryLog, opened

XID = make_xid(1, "global", "here")
OTHER = make_xid(1, "global", "there")


class Scene:
    """A journal in memory and a resource on it."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.log = MemoryLog()
        self.journal: MemoryJournal
        self.resource: XaResource
        self.reopen()

    def reopen(self) -> None:
        """A resource after a crash: what was not durable is gone."""
        self.journal, self.resource = opened(self.log, clock_ms=lambda: self.now_ms)

    def work(self, xid: Xid = XID, *, end: bool = True, timeout_ms: float = math.inf) -> int:
        """A branch with a message, and nobody working in it any more."""
        self.resource.tpc_begin(xid, timeout_ms=timeout_ms)
        tx = self.resource.tx(xid)
        self.journal.add(self.journal.new_id(), MESSAGE_KIND, xid.gtrid, tx=tx)
        if end:
            self.resource.end(xid)
        return tx

    def prepared(self, xid: Xid = XID) -> int:
        tx = self.work(xid)
        assert self.resource.tpc_prepare(xid) is Vote.COMMIT
        return tx

    @property
    def messages(self) -> set[bytes]:
        return self.log.messages()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def code_of(call: object, *arguments: object, **more: object) -> XaCode:
    assert callable(call)
    with pytest.raises(XidError) as raised:
        call(*arguments, **more)
    return XaCode(raised.value.code)


# ---- xids --------------------------------------------------------------------------------------------------------

WRONG: list[Any] = [
    None,
    "1:global:here",
    (1, b"global"),
    (1, b"h" * 100, b""),
    Xid(1, b"h" * 100, b""),
    Xid(1, b"", b""),
    Xid(1, b"g", bytes(65)),
    Xid(2**31, b"g", b""),
    Xid(1, None, b""),  # type: ignore[arg-type]
]
TAKES_AN_XID: dict[str, Callable[[XaResource, Any], object]] = {
    "tpc_begin": XaResource.tpc_begin,
    "tpc_prepare": XaResource.tpc_prepare,
    "tpc_commit": XaResource.tpc_commit,
    "tpc_commit, others": lambda resource, xid: resource.tpc_commit(XID, confirm=[OTHER, xid]),
    "tpc_rollback": XaResource.tpc_rollback,
    "tx": XaResource.tx,
    "join": XaResource.join,
    "end": XaResource.end,
    "suspend": XaResource.suspend,
    "resume": XaResource.resume,
    "settle": lambda resource, xid: resource.settle(xid, commit=True),
    "forget": XaResource.forget,
    "state_of": XaResource.state_of,
    "not_durable": XaResource.not_durable,
    "outcome": XaResource.outcome,
}


@pytest.mark.parametrize("call", TAKES_AN_XID)
def test_what_is_no_xid_is_refused_by_every_call_and_changes_nothing(scene: Scene, call: str) -> None:
    scene.prepared()
    for wrong in WRONG:
        assert code_of(TAKES_AN_XID[call], scene.resource, wrong) == XaCode.INVAL
        assert scene.resource.tpc_recover() == [XID]
        assert scene.resource.state_of(XID) is BranchState.PREPARED
    scene.resource.tpc_commit(XID)
    assert scene.messages == {b"global"}


@pytest.mark.parametrize("plain", [(1, b"plain", b"one"), (1, "plain", "one")])
def test_a_plain_tuple_is_an_xid_in_every_call(scene: Scene, plain: AnyXid) -> None:
    resource, xid = scene.resource, make_xid(*plain)

    def work() -> None:
        resource.tpc_begin(plain)
        resource.suspend(plain)
        resource.resume(plain)
        resource.join(plain, session="another")
        resource.end(plain, session="another")
        scene.journal.add(scene.journal.new_id(), MESSAGE_KIND, b"done", tx=resource.tx(plain))
        resource.end(plain)
        assert resource.tpc_prepare(plain) is Vote.COMMIT
        assert (resource.tpc_recover(), resource.state_of(plain)) == ([xid], BranchState.PREPARED)

    work()
    resource.tpc_rollback(plain)
    work()
    resource.tpc_commit(plain, confirm=[(1, "plain", "two")])
    assert scene.messages == {b"done"}
    assert [kept.xid for kept in resource.outcomes()] == [make_xid(1, "plain", "two")]
    assert resource.outcome((1, "plain", "two")) is not None
    resource.forget((1, "plain", "two"))
    work()
    resource.settle(plain, commit=False)
    resource.forget(plain)
    assert not resource.not_durable(plain)


def test_a_prepare_that_a_clock_without_a_time_stops_leaves_the_branch_as_it_was(scene: Scene) -> None:
    scene.work()
    scene.now_ms, now_ms = math.nan, scene.now_ms
    with pytest.raises(ValueError):  # noqa: PT011 (int's own)
        scene.resource.tpc_prepare(XID)
    scene.now_ms = now_ms
    assert scene.resource.tpc_prepare(XID) is Vote.COMMIT


# ---- the two phases --------------------------------------------------------------------------------------------


def test_a_prepared_branch_takes_effect_at_its_commit(scene: Scene) -> None:
    scene.prepared()
    assert scene.resource.tpc_recover() == [XID]
    assert not scene.messages
    scene.resource.tpc_commit(XID)
    assert scene.messages == {b"global"}
    assert scene.resource.tpc_recover() == []
    assert scene.resource.state_of(XID) is None
    assert not scene.resource.outcomes()


def test_a_prepared_branch_rolled_back_leaves_nothing(scene: Scene) -> None:
    scene.prepared()
    scene.resource.tpc_rollback(XID)
    assert not scene.messages
    assert not scene.log.prepared


def test_a_prepared_branch_survives_and_can_be_settled_by_whoever_comes_next(scene: Scene) -> None:
    tx = scene.prepared()
    scene.reopen()
    assert [(line.xid, line.tx, line.since_ms) for line in scene.resource.in_doubt()] == [(XID, tx, START_MS)]
    scene.resource.tpc_commit(XID)
    assert scene.messages == {b"global"}


def test_one_phase_needs_no_prepare(scene: Scene) -> None:
    scene.work()
    scene.resource.tpc_commit(XID, one_phase=True)
    assert scene.messages == {b"global"}


def test_a_one_phase_commit_is_refused_once_prepared_and_a_two_phase_commit_before(scene: Scene) -> None:
    scene.work()
    assert code_of(scene.resource.tpc_commit, XID) is XaCode.PROTO
    scene.resource.tpc_prepare(XID)
    assert code_of(scene.resource.tpc_commit, XID, one_phase=True) is XaCode.PROTO
    assert scene.resource.state_of(XID) is BranchState.PREPARED


@pytest.mark.parametrize("settle", ["tpc_prepare", "tpc_rollback"])
def test_a_branch_in_which_nothing_was_done_never_reaches_the_journal(scene: Scene, settle: str) -> None:
    scene.resource.tpc_begin(XID)
    scene.resource.end(XID)
    assert getattr(scene.resource, settle)(XID) in (Vote.READ_ONLY, None)
    assert scene.resource.state_of(XID) is None
    assert not scene.journal.steps.names


def test_a_branch_whose_transaction_was_asked_for_and_not_used_is_read_only(scene: Scene) -> None:
    scene.resource.tpc_begin(XID)
    tx = scene.resource.tx(XID)
    scene.resource.end(XID)
    scene.journal.refusals = 1
    with pytest.raises(FullError):
        scene.resource.tpc_prepare(XID)
    assert scene.resource.state_of(XID) is BranchState.IDLE
    assert scene.resource.tpc_prepare(XID) is Vote.READ_ONLY
    assert scene.resource.state_of(XID) is None
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")
    assert not scene.log.prepared


def test_a_one_phase_commit_of_an_empty_branch_is_read_only(scene: Scene) -> None:
    scene.resource.tpc_begin(XID)
    scene.resource.end(XID)
    scene.resource.tpc_commit(XID, one_phase=True)
    assert not scene.journal.steps.names


# ---- refusals change nothing -----------------------------------------------------------------------------------


def test_an_unknown_xid_is_nota(scene: Scene) -> None:
    resource = scene.resource
    calls = (resource.tpc_prepare, resource.tpc_commit, resource.tpc_rollback, resource.forget, resource.tx)
    for call in (*calls, resource.join, resource.end, resource.suspend, resource.resume):
        assert code_of(call, XID) is XaCode.NOTA


def test_an_xid_in_use_is_dupid_whatever_its_state(scene: Scene) -> None:
    scene.work()
    assert code_of(scene.resource.tpc_begin, XID) is XaCode.DUPID
    scene.resource.tpc_prepare(XID)
    assert code_of(scene.resource.tpc_begin, XID) is XaCode.DUPID
    scene.resource.settle(XID, commit=True)
    assert code_of(scene.resource.tpc_begin, XID) is XaCode.DUPID
    scene.resource.forget(XID)
    scene.resource.tpc_begin(XID)


def test_nothing_is_prepared_or_settled_while_a_session_is_at_work(scene: Scene) -> None:
    scene.work(end=False)
    for call in (scene.resource.tpc_prepare, scene.resource.tpc_commit, scene.resource.tpc_rollback):
        assert code_of(call, XID) is XaCode.PROTO
    scene.resource.suspend(XID)
    assert code_of(scene.resource.tpc_prepare, XID) is XaCode.PROTO
    scene.resource.resume(XID)
    scene.resource.end(XID)
    scene.resource.tpc_prepare(XID)


def test_nothing_more_is_done_in_a_prepared_branch(scene: Scene) -> None:
    scene.prepared()
    for call in (scene.resource.tx, scene.resource.join, scene.resource.tpc_prepare):
        assert code_of(call, XID) is XaCode.PROTO


@pytest.mark.parametrize("call", ["tpc_prepare", "tpc_commit", "tpc_rollback"])
def test_what_the_journal_refuses_leaves_the_branch_as_it_was(scene: Scene, call: str) -> None:
    if call == "tpc_prepare":
        scene.work()
    else:
        scene.prepared()
    before = scene.resource.state_of(XID)
    scene.journal.refusals = 1
    with pytest.raises(FullError):
        getattr(scene.resource, call)(XID)
    assert scene.resource.state_of(XID) is before
    getattr(scene.resource, call)(XID)


def test_a_refused_forget_keeps_the_outcome(scene: Scene) -> None:
    scene.prepared()
    scene.resource.settle(XID, commit=True)
    scene.journal.refusals = 1
    with pytest.raises(FullError):
        scene.resource.forget(XID)
    assert scene.resource.outcome(XID) is not None


def test_branches_are_bounded(scene: Scene) -> None:
    resource = XaResource(scene.journal, scene.journal, scene.log.loaded(), clock_ms=lambda: START_MS, branches_max=1)
    resource.tpc_begin(XID)
    with pytest.raises(FullError):
        resource.tpc_begin(OTHER)
    resource.end(XID)
    resource.tpc_rollback(XID)
    resource.tpc_begin(OTHER)


def test_doomed_branches_that_hold_nothing_and_that_nobody_works_in_make_room(scene: Scene) -> None:
    resource = XaResource(scene.journal, scene.journal, scene.log.loaded(), clock_ms=lambda: START_MS, branches_max=1)
    resource.tpc_begin(XID)
    resource.tx(XID)
    resource.join(XID, session="another")
    resource.end(XID, failed=True)

    def leave() -> None:
        assert code_of(resource.end, XID, session="another") is XaCode.RBROLLBACK

    for let_go in (lambda: None, resource.expire, leave):
        let_go()
        with pytest.raises(FullError):
            resource.tpc_begin(OTHER)
        assert resource.state_of(XID) is BranchState.DOOMED
    resource.expire()
    resource.tpc_begin(OTHER)
    assert code_of(resource.tpc_rollback, XID) is XaCode.NOTA


def test_a_wait_past_its_deadline_leaves_open_what_became_of_the_branch_until_it_is_known(scene: Scene) -> None:
    scene.work()
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        scene.resource.tpc_prepare(XID)
    assert scene.resource.state_of(XID) is BranchState.PREPARING
    assert scene.resource.tpc_recover() == []
    assert code_of(scene.resource.tpc_commit, XID) is XaCode.PROTO
    scene.journal.flush()
    assert scene.resource.tpc_recover() == [XID]


SETTLE = pytest.mark.parametrize("call", ["tpc_commit", "tpc_rollback"])


@SETTLE
def test_a_branch_is_recoverable_until_what_settles_it_is_durable(scene: Scene, call: str) -> None:
    scene.prepared()
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        getattr(scene.resource, call)(XID)
    assert scene.resource.tpc_recover() == [XID]
    assert not scene.resource.in_doubt()
    scene.journal.lose()
    scene.reopen()
    assert scene.resource.tpc_recover() == [XID]
    getattr(scene.resource, call)(XID)
    assert scene.resource.tpc_recover() == []


def test_what_was_never_prepared_is_not_recoverable_while_it_commits(scene: Scene) -> None:
    scene.work()
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        scene.resource.tpc_commit(XID, one_phase=True)
    assert scene.resource.tpc_recover() == []


@SETTLE
def test_a_call_past_its_deadline_is_made_again_and_waits_on(scene: Scene, call: str) -> None:
    scene.prepared()
    settle = getattr(scene.resource, call)
    scene.journal.slow = 2
    for _ in range(2):
        with pytest.raises(DeadlineError):
            settle(XID)
    settle(XID)
    assert scene.messages == ({b"global"} if call == "tpc_commit" else set())
    assert scene.journal.steps.names.count(f"{call[4:]} accepted") == 1
    assert code_of(settle, XID) is XaCode.NOTA


def test_a_branch_whose_prepare_is_past_its_deadline_can_be_rolled_back(scene: Scene) -> None:
    scene.work()
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        scene.resource.tpc_prepare(XID)
    scene.resource.tpc_rollback(XID)
    assert scene.resource.state_of(XID) is None
    assert not scene.log.prepared


@SETTLE
def test_a_coordinator_that_waits_for_what_is_settled_by_hand_hears_of_that(scene: Scene, call: str) -> None:
    scene.prepared()
    commit = call == "tpc_commit"
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        scene.resource.settle(XID, commit=commit)
    assert code_of(getattr(scene.resource, call), XID) is (XaCode.HEURCOM if commit else XaCode.HEURRB)
    assert scene.messages == ({b"global"} if commit else set())


# ---- time-outs -------------------------------------------------------------------------------------------------


def test_an_unprepared_branch_times_out_and_can_only_be_rolled_back(scene: Scene) -> None:
    tx = scene.work(end=False, timeout_ms=10)
    scene.now_ms += 9
    assert scene.resource.expire() == []
    scene.now_ms += 1
    assert scene.resource.expire() == [XID]
    assert scene.resource.expire() == []
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")
    for call, more in ((scene.resource.tx, {}), (scene.resource.join, {"session": "another"})):
        assert code_of(call, XID, **more) is XaCode.RBTIMEOUT
    scene.resource.tpc_rollback(XID)
    assert scene.resource.state_of(XID) is None


@pytest.mark.parametrize("call", ["end", "suspend"])
def test_a_session_that_leaves_a_branch_whose_time_is_over_hears_so_and_has_left(scene: Scene, call: str) -> None:
    scene.work(end=False, timeout_ms=10)
    scene.now_ms += 10
    assert code_of(getattr(scene.resource, call), XID) is XaCode.RBTIMEOUT
    assert code_of(scene.resource.end, XID) is XaCode.PROTO
    assert scene.resource.expire() == [XID]
    scene.resource.tpc_rollback(XID)


@pytest.mark.parametrize("failed", [False, True])
def test_a_suspended_session_ends_its_work(scene: Scene, failed: bool) -> None:
    scene.work(end=False)
    scene.resource.suspend(XID)
    scene.resource.end(XID, failed=failed)
    if failed:
        assert code_of(scene.resource.tpc_prepare, XID) is XaCode.RBROLLBACK
    else:
        assert scene.resource.tpc_prepare(XID) is Vote.COMMIT


@pytest.mark.parametrize("call", ["tx", "join", "resume", "tpc_prepare", "tpc_commit"])
def test_a_deadline_holds_though_nobody_expires_branches(scene: Scene, call: str) -> None:
    tx = scene.work(end=False, timeout_ms=10)
    scene.resource.suspend(XID)
    scene.now_ms += 10
    more = {"one_phase": True} if call == "tpc_commit" else {}
    assert code_of(getattr(scene.resource, call), XID, **more) is XaCode.RBTIMEOUT
    scene.resource.expire()
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")


def test_a_wall_clock_that_is_set_times_no_branch_out() -> None:
    wall_ms = START_MS
    journal, resource = opened(MemoryLog(), clock_ms=lambda: wall_ms, elapsed_ms=lambda: 5.0)
    resource.tpc_begin(XID, timeout_ms=10)
    wall_ms += 10**9
    assert resource.expire() == []
    journal.add(journal.new_id(), MESSAGE_KIND, b"done", tx=resource.tx(XID))
    resource.end(XID)
    assert resource.tpc_prepare(XID) is Vote.COMMIT


def test_a_prepared_branch_never_times_out(scene: Scene) -> None:
    scene.work(timeout_ms=10)
    scene.resource.tpc_prepare(XID)
    scene.now_ms += 10**12
    assert scene.resource.expire() == []
    assert scene.resource.tpc_recover() == [XID]


def test_a_timed_out_rollback_that_was_refused_is_tried_again(scene: Scene) -> None:
    tx = scene.work(timeout_ms=1)
    scene.now_ms += 1
    scene.journal.refusals = 1
    assert scene.resource.expire() == []
    scene.journal.prepare(scene.journal.begin(), b"nobody is refused now")
    assert scene.resource.expire() == [XID]
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")


def failed(scene: Scene, xid: Xid = XID) -> int:
    """A branch that a failed session has doomed."""
    tx = scene.work(xid, end=False)
    scene.resource.end(xid, failed=True)
    return tx


def test_what_a_failed_branch_holds_is_given_back_though_nobody_rolls_it_back(scene: Scene) -> None:
    tx = failed(scene)
    assert scene.resource.expire() == [XID]
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")
    assert scene.resource.expire() == []
    scene.resource.tpc_rollback(XID)
    assert scene.resource.state_of(XID) is None


@pytest.mark.parametrize("more", [{}, {"one_phase": True}], ids=["prepare", "one-phase"])
def test_a_branch_that_answers_a_rollback_code_is_rolled_back_and_gone(scene: Scene, more: dict[str, bool]) -> None:
    first_phase = scene.resource.tpc_commit if more else scene.resource.tpc_prepare
    tx = failed(scene)
    assert code_of(first_phase, XID, **more) is XaCode.RBROLLBACK
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")
    assert code_of(scene.resource.tpc_rollback, XID) is XaCode.NOTA
    scene.resource.tpc_begin(XID)
    assert not scene.messages


def test_branches_that_answered_a_rollback_code_leave_room_for_others(scene: Scene) -> None:
    resource = XaResource(scene.journal, scene.journal, scene.log.loaded(), clock_ms=lambda: START_MS, branches_max=1)
    for xid in (XID, OTHER):
        resource.tpc_begin(xid)
        resource.tx(xid)
        resource.end(xid, failed=True)
        assert code_of(resource.tpc_commit, xid, one_phase=True) is XaCode.RBROLLBACK


def test_a_rollback_code_is_not_heard_before_the_rollback_was_accepted(scene: Scene) -> None:
    failed(scene)
    scene.journal.refusals = 1
    with pytest.raises(FullError):
        scene.resource.tpc_prepare(XID)
    assert scene.resource.state_of(XID) is BranchState.DOOMED
    assert code_of(scene.resource.tpc_prepare, XID) is XaCode.RBROLLBACK


# ---- heuristic outcomes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_heuristic_outcome_is_told_until_it_is_forgotten(scene: Scene, commit: bool) -> None:
    scene.prepared()
    scene.resource.settle(XID, commit=commit)
    for _ in range(2):
        assert scene.messages == ({b"global"} if commit else set())
        assert scene.resource.tpc_recover() == [XID]
        assert not scene.resource.in_doubt()
        code = XaCode.HEURCOM if commit else XaCode.HEURRB
        assert code_of(scene.resource.tpc_commit, XID) is code
        assert code_of(scene.resource.tpc_rollback, XID) is code
        scene.reopen()
    scene.resource.forget(XID)
    assert scene.resource.tpc_recover() == []
    assert code_of(scene.resource.tpc_commit, XID) is XaCode.NOTA
    scene.reopen()
    assert scene.resource.tpc_recover() == []


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_a_crash_anywhere_in_a_heuristic_settlement_leaves_it_done_or_not_begun(commit: bool, kept: bool) -> None:
    for step in range(9):
        scene = Scene()
        scene.prepared()
        scene.journal.steps.crash_at(step)
        try:
            scene.resource.settle(XID, commit=commit)
        except Crash:
            (scene.journal.flush if kept else scene.journal.lose)()
        scene.reopen()
        outcome = scene.resource.outcome(XID)
        if outcome is None:
            assert [line.xid for line in scene.resource.in_doubt()] == [XID]
            assert not scene.messages
        else:
            assert outcome.decision == (HEURISTIC_COMMIT if commit else HEURISTIC_ROLLBACK)
            assert not scene.resource.in_doubt()
            assert bool(scene.messages) == commit


def test_a_rollback_whose_decision_was_written_and_then_refused_is_finished_by_the_next(scene: Scene) -> None:
    scene.prepared()
    scene.journal.steps.at(2, lambda: setattr(scene.journal, "refusals", 1))
    with pytest.raises(FullError):
        scene.resource.settle(XID, commit=False)
    assert code_of(scene.resource.settle, XID, commit=True) is XaCode.PROTO
    assert code_of(scene.resource.tpc_commit, XID) is XaCode.HEURRB
    scene.resource.settle(XID, commit=False)
    assert not scene.resource.in_doubt()


def decided(scene: Scene, xid: Xid = XID) -> None:
    """A branch in doubt whose rollback was decided, and then refused."""
    scene.prepared(xid)
    scene.journal.steps.at(2, lambda: setattr(scene.journal, "refusals", 1))
    with pytest.raises(FullError):
        scene.resource.settle(xid, commit=False)


@pytest.mark.parametrize("error", [TransactionUnknownError("no such transaction"), InvalidOperationError("too much")])
def test_a_rollback_that_cannot_be_finished_stops_no_other(scene: Scene, error: JournalError) -> None:
    decided(scene)
    decided(scene, OTHER)

    def refuse() -> None:
        raise error

    scene.journal.steps.at(0, refuse)
    scene.resource.finish()
    assert [line.xid for line in scene.resource.in_doubt()] == [XID]
    scene.resource.finish()
    assert not scene.resource.in_doubt()


@pytest.mark.parametrize("error", [ClosedError("closed"), StateError("not active")])
def test_a_journal_that_has_ended_finishes_no_rollback(scene: Scene, error: JournalError) -> None:
    decided(scene)

    def refuse() -> None:
        raise error

    scene.journal.steps.at(0, refuse)
    with pytest.raises(type(error)):
        scene.resource.finish()


def test_a_branch_is_found_by_its_transaction_until_it_is_settled(scene: Scene) -> None:
    tx = scene.work()
    assert scene.resource.xid_of(tx) == XID
    scene.resource.tpc_prepare(XID)
    assert scene.resource.xid_of(tx) == XID
    scene.resource.tpc_commit(XID)
    assert scene.resource.xid_of(tx) is None


def test_only_what_is_in_doubt_is_settled_by_hand(scene: Scene) -> None:
    scene.work()
    assert code_of(scene.resource.settle, XID, commit=True) is XaCode.PROTO
    assert code_of(scene.resource.settle, OTHER, commit=True) is XaCode.NOTA
    assert scene.resource.state_of(XID) is BranchState.IDLE


# ---- the decision log ------------------------------------------------------------------------------------------


def test_a_commit_keeps_an_outcome_for_each_branch_that_has_to_confirm(scene: Scene) -> None:
    others = [make_xid(1, "global", f"there-{number}") for number in range(3)]
    scene.prepared()
    scene.resource.tpc_commit(XID, confirm=others)
    scene.reopen()
    assert {(kept.xid, kept.decision) for kept in scene.resource.outcomes()} == {(xid, COMMITTED) for xid in others}
    assert scene.resource.tpc_recover() == []
    scene.resource.forget(others[0])
    scene.reopen()
    assert {kept.xid for kept in scene.resource.outcomes()} == set(others[1:])


@pytest.mark.parametrize("kept", [True, False])
def test_a_commit_and_its_outcomes_are_one(kept: bool) -> None:
    for step in range(4):
        scene = Scene()
        scene.prepared()
        scene.journal.steps.crash_at(step)
        try:
            scene.resource.tpc_commit(XID, confirm=[OTHER])
        except Crash:
            (scene.journal.flush if kept else scene.journal.lose)()
        scene.reopen()
        assert bool(scene.messages) == (scene.resource.outcome(OTHER) is not None)


# ---- what a load finds -----------------------------------------------------------------------------------------


def test_transactions_prepared_without_xa_are_named_apart(scene: Scene) -> None:
    tx = scene.journal.begin()
    scene.journal.prepare(tx, b"somebody's own")
    scene.journal.flush()
    scene.prepared()
    scene.reopen()
    assert scene.resource.unnamed == [tx]
    assert scene.resource.tpc_recover() == [XID]


def test_a_load_warns_of_what_is_in_doubt(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    tx = scene.prepared()
    scene.reopen()
    assert f"in doubt: transaction {tx}, xid 1:global:here" in caplog.text


def test_a_load_names_only_some_of_many_and_says_how_many_more(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(WARNINGS_MAX + 2):
        scene.journal.prepare(scene.journal.begin(), b"somebody's own")
    scene.journal.flush()
    scene.reopen()
    assert caplog.text.count("in doubt: transaction ") == WARNINGS_MAX
    assert "in doubt: 2 more" in caplog.text
