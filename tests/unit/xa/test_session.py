"""A session: PEP 249's two-phase calls on one branch, suspended and joined as X/Open has it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from journal.append.completion import Completion
from journal.errors import DeadlineError, FullError, TransactionUnknownError, XidError
from journal.xa.branch import BranchState, Vote
from journal.xa.codes import XaCode
from journal.xa.session import Session, SessionState, valid_transition
from journal.xa.xid import Xid, make_xid
from tests.support.xa import MESSAGE_KIND, START_MS, MemoryJournal, MemoryLog, opened

XID = make_xid(1, "global", "one")
OTHER = make_xid(1, "global", "two")
ALLOWED = {
    ("FREE", "WORKING"),
    ("WORKING", "FREE"),
    ("WORKING", "PREPARED"),
    ("WORKING", "ROLLED_BACK"),
    ("PREPARED", "FREE"),
    ("ROLLED_BACK", "FREE"),
    ("ROLLED_BACK", "WORKING"),
}


class Scene:
    def __init__(self) -> None:
        self.now_ms = START_MS
        self.log = MemoryLog()
        self.journal: MemoryJournal
        self.journal, self.resource = opened(self.log, clock_ms=lambda: self.now_ms)
        self.session = Session(self.resource)

    def work(self, session: Session | None = None) -> None:
        tx = (session or self.session).tx
        self.journal.add(self.journal.new_id(), MESSAGE_KIND, b"done", tx=tx)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(("now", "then"), list(itertools.product(SessionState, repeat=2)))
def test_a_session_changes_only_as_the_table_says(now: SessionState, then: SessionState) -> None:
    assert valid_transition(now, then) == ((now.name, then.name) in ALLOWED)


TAKES_AN_XID: list[Callable[[Session, Any], object]] = [
    Session.tpc_begin,
    lambda session, xid: session.tpc_begin(xid, join=True),
    Session.resume,
    Session.tpc_commit,
    Session.tpc_rollback,
    Session.forget,
]


@pytest.mark.parametrize("call", TAKES_AN_XID)
@pytest.mark.parametrize("working", [True, False])
def test_what_is_no_xid_is_refused_and_the_session_is_as_before(
    scene: Scene, call: Callable[[Session, Any], object], working: bool
) -> None:
    if working:
        scene.session.tpc_begin(XID)
    for wrong in ("1:global:one", (1, b"global"), (1, b"h" * 100, b""), Xid(1, b"h" * 100, b""), Xid(1, b"", b"")):
        with pytest.raises(XidError) as raised:
            call(scene.session, wrong)
        assert raised.value.code == XaCode.INVAL
        assert scene.session.state is (SessionState.WORKING if working else SessionState.FREE)
    if not working:
        scene.session.tpc_begin(XID)
    scene.work()
    scene.session.tpc_commit()
    assert scene.log.messages() == {b"done"}


@pytest.mark.parametrize("plain", [(1, b"global", b"one"), (1, "global", "one")])
def test_a_session_takes_plain_tuples(scene: Scene, plain: tuple[int, bytes | str, bytes | str]) -> None:
    session = scene.session
    session.tpc_begin(plain)
    assert session.suspend() == XID
    with pytest.raises(XidError, match="resume it"):
        session.tpc_begin(plain, join=True)
    session.resume(plain)
    scene.work()
    session.tpc_prepare()
    other = Session(scene.resource)
    assert other.tpc_recover() == [XID]
    other.tpc_commit(plain)
    assert scene.log.messages() == {b"done"}


def test_a_session_prepares_and_commits_its_branch(scene: Scene) -> None:
    scene.session.tpc_begin(scene.session.xid(1, "global", "one"))
    scene.work()
    assert scene.session.tpc_prepare() is Vote.COMMIT
    assert scene.session.tpc_recover() == [XID]
    scene.session.tpc_commit()
    assert scene.log.messages() == {b"done"}
    assert scene.session.state is SessionState.FREE


def test_a_session_commits_an_unprepared_branch_in_one_phase(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    scene.session.tpc_commit()
    assert scene.log.messages() == {b"done"}
    assert scene.session.state is SessionState.FREE


@pytest.mark.parametrize("prepared", [True, False])
def test_a_session_rolls_back_its_branch_prepared_or_not(scene: Scene, prepared: bool) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    if prepared:
        scene.session.tpc_prepare()
    scene.session.tpc_rollback()
    assert scene.session.state is SessionState.FREE
    assert scene.resource.state_of(XID) is None


def test_a_read_only_vote_frees_the_session(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    assert scene.session.tpc_prepare() is Vote.READ_ONLY
    assert scene.session.state is SessionState.FREE


def test_recovery_calls_take_an_xid_and_a_free_session(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    scene.session.tpc_prepare()
    other = Session(scene.resource)
    other.tpc_commit(XID)
    with pytest.raises(XidError):
        scene.session.tpc_commit(XID)
    with pytest.raises(XidError):
        scene.session.tpc_commit()
    assert scene.session.state is SessionState.FREE


@pytest.mark.parametrize("call", ["tpc_prepare", "tpc_commit", "tpc_rollback", "suspend", "end"])
def test_a_free_session_has_nothing_to_settle(scene: Scene, call: str) -> None:
    with pytest.raises(XidError) as raised:
        getattr(scene.session, call)()
    assert raised.value.code == XaCode.PROTO


def test_a_session_has_one_branch_at_a_time(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    with pytest.raises(XidError):
        scene.session.tpc_begin(OTHER)
    assert scene.resource.state_of(OTHER) is None


def test_two_sessions_work_in_one_branch(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    other = Session(scene.resource)
    with pytest.raises(XidError) as raised:
        other.tpc_begin(XID)
    assert raised.value.code == XaCode.DUPID
    other.tpc_begin(XID, join=True)
    assert other.tx == scene.session.tx
    scene.work(other)
    with pytest.raises(XidError):
        scene.session.tpc_prepare()
    assert scene.session.state is SessionState.WORKING
    other.end()
    scene.session.tpc_prepare()
    scene.session.tpc_commit()
    assert scene.log.messages() == {b"done"}


def test_a_branch_suspended_is_left_and_come_back_to(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    assert scene.session.suspend() == XID
    scene.session.tpc_begin(OTHER)
    with pytest.raises(XidError):
        scene.session.resume(XID)
    scene.session.tpc_rollback()
    with pytest.raises(XidError):
        scene.session.tpc_begin(XID, join=True)
    with pytest.raises(XidError):
        Session(scene.resource).resume(XID)
    scene.session.resume(XID)
    scene.session.tpc_prepare()
    scene.session.tpc_commit()
    assert scene.log.messages() == {b"done"}


def test_a_session_ends_no_work_but_its_own(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    other = Session(scene.resource)
    for call in (lambda: other.end(XID), lambda: other.resume(XID)):
        with pytest.raises(XidError) as raised:
            call()
        assert raised.value.code == XaCode.PROTO
    assert scene.resource.state_of(XID) is BranchState.ACTIVE
    scene.session.tpc_prepare()
    with pytest.raises(XidError):
        scene.session.end(XID)
    assert scene.session.state is SessionState.PREPARED


def test_a_session_ends_what_it_has_suspended_without_coming_back(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    scene.session.suspend()
    scene.session.tpc_begin(OTHER)
    scene.session.end(XID)
    assert scene.session.state is SessionState.WORKING
    scene.resource.tpc_prepare(XID)
    scene.session.close()
    assert scene.resource.tpc_recover() == [XID]


def test_what_the_journal_refuses_leaves_the_session_in_its_branch(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    for call in (scene.session.tpc_prepare, scene.session.tpc_commit, scene.session.tpc_rollback):
        scene.journal.refusals = 1
        with pytest.raises(FullError):
            call()
        assert scene.session.state is SessionState.WORKING
        assert scene.resource.state_of(XID) is BranchState.ACTIVE
    scene.session.tpc_prepare()
    scene.journal.refusals = 1
    with pytest.raises(FullError):
        scene.session.tpc_commit()
    assert scene.session.state is SessionState.PREPARED
    scene.session.tpc_commit()


def test_a_session_settles_its_branch_though_a_deadline_passed_before(scene: Scene) -> None:
    for slow, settle in (("tpc_prepare", "tpc_rollback"), ("tpc_commit", "tpc_commit")):
        scene.session.tpc_begin(XID)
        scene.work()
        if slow == "tpc_commit":
            scene.session.tpc_prepare()
        scene.journal.slow = 1
        with pytest.raises(DeadlineError):
            getattr(scene.session, slow)()
        assert scene.session.state is SessionState.PREPARED
        getattr(scene.session, settle)()
        assert scene.session.state is SessionState.FREE
        assert scene.resource.state_of(XID) is None
    assert scene.log.messages() == {b"done"}


SETTLE = pytest.mark.parametrize("settle", ["tpc_commit", "tpc_rollback"])


@SETTLE
def test_what_was_never_prepared_is_settled_by_the_same_call_once_more_after_a_deadline(
    scene: Scene, settle: str
) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    scene.journal.slow = 2
    for _ in range(2):
        with pytest.raises(DeadlineError):
            getattr(scene.session, settle)()
        assert scene.session.state is SessionState.PREPARED
    getattr(scene.session, settle)()
    assert scene.session.state is SessionState.FREE
    assert scene.journal.steps.names.count(f"{settle[4:]} accepted") == 1
    assert scene.log.messages() == ({b"done"} if settle == "tpc_commit" else set())


@SETTLE
@pytest.mark.parametrize("prepared", [True, False])
def test_what_became_durable_right_behind_its_deadline_is_nota_to_the_next_call(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, settle: str, prepared: bool
) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    if prepared:
        scene.session.tpc_prepare()
    state_of = scene.resource.state_of

    def durable_meanwhile(xid: Xid) -> BranchState | None:
        scene.journal.flush()
        return state_of(xid)

    monkeypatch.setattr(scene.resource, "state_of", durable_meanwhile)
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        getattr(scene.session, settle)()
    with pytest.raises(XidError) as raised:
        getattr(scene.session, settle)()
    assert raised.value.code == XaCode.NOTA
    assert scene.session.state is SessionState.FREE


@pytest.mark.parametrize("expire", [True, False])
@pytest.mark.parametrize("call", ["tpc_prepare", "tpc_commit"])
@pytest.mark.parametrize("rolls_back", [True, False])
def test_a_session_that_took_too_long_is_rolled_back_whether_it_asks_for_that_or_not(
    scene: Scene, call: str, expire: bool, rolls_back: bool
) -> None:
    scene.session.tpc_begin(XID, timeout_ms=1)
    scene.work()
    scene.now_ms += 1
    if expire:
        scene.resource.expire()
    with pytest.raises(XidError) as raised:
        getattr(scene.session, call)()
    assert raised.value.code == XaCode.RBTIMEOUT
    assert scene.session.state is SessionState.ROLLED_BACK
    assert scene.resource.state_of(XID) is None
    assert not scene.log.messages()
    if rolls_back:
        scene.session.tpc_rollback()
        assert scene.session.state is SessionState.FREE
    scene.session.tpc_begin(XID)


def test_a_timed_out_session_can_do_nothing_but_roll_back(scene: Scene) -> None:
    scene.session.tpc_begin(XID, timeout_ms=1)
    scene.work()
    scene.now_ms += 1
    with pytest.raises(XidError) as raised:
        scene.work()
    assert raised.value.code == XaCode.RBTIMEOUT
    scene.session.tpc_rollback()
    assert scene.session.state is SessionState.FREE
    assert scene.resource.state_of(XID) is None


def test_a_session_closed_late_leaves_what_it_had_suspended_doomed(scene: Scene) -> None:
    scene.session.tpc_begin(XID, timeout_ms=1)
    scene.work()
    scene.session.suspend()
    scene.now_ms += 1
    scene.session.close()
    assert scene.resource.expire() == [XID]


def test_a_closed_session_dooms_what_it_worked_in_or_suspended_and_nothing_else(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    scene.session.suspend()
    scene.session.tpc_begin(OTHER)
    scene.work()
    scene.session.close()
    for xid in (XID, OTHER):
        assert scene.resource.state_of(xid) is BranchState.DOOMED
        scene.resource.tpc_rollback(xid)
    session = Session(scene.resource)
    session.tpc_begin(XID)
    scene.work(session)
    session.tpc_prepare()
    session.close()
    assert session.tpc_recover() == [XID]


@pytest.mark.parametrize("leave", ["end", "suspend", "close"])
def test_what_a_session_does_after_its_branch_was_given_back_goes_back_when_it_leaves(scene: Scene, leave: str) -> None:
    scene.session.tpc_begin(XID)
    tx = scene.session.tx
    failing = Session(scene.resource)
    failing.tpc_begin(XID, join=True)
    failing.close()
    assert scene.resource.expire() == [XID]
    scene.journal.add(scene.journal.new_id(), MESSAGE_KIND, b"late", tx=tx)
    with nullcontext() if leave == "close" else pytest.raises(XidError, match="can only be rolled back"):
        getattr(scene.session, leave)()
    assert scene.resource.expire() == [XID]
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")
    assert scene.resource.expire() == []


def test_what_a_session_does_while_its_branch_is_given_back_is_given_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.session.tpc_begin(XID, timeout_ms=1)
    tx = scene.session.tx
    scene.now_ms += 1
    rollback = scene.journal.rollback

    def at_work_meanwhile(tx: int) -> Completion:
        done = rollback(tx)
        monkeypatch.undo()
        scene.journal.add(scene.journal.new_id(), MESSAGE_KIND, b"late", tx=tx)
        with pytest.raises(XidError, match="can only be rolled back"):
            scene.session.end()
        return done

    monkeypatch.setattr(scene.journal, "rollback", at_work_meanwhile)
    assert [scene.resource.expire() for _ in range(3)] == [[XID], [XID], []]
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")


def test_a_heuristic_outcome_reaches_the_session_and_is_forgotten(scene: Scene) -> None:
    scene.session.tpc_begin(XID)
    scene.work()
    scene.session.tpc_prepare()
    scene.resource.settle(XID, commit=False)
    with pytest.raises(XidError) as raised:
        scene.session.tpc_commit()
    assert raised.value.code == XaCode.HEURRB
    assert scene.session.state is SessionState.FREE
    scene.session.forget(XID)
    assert scene.session.tpc_recover() == []
