"""`on_in_doubt`: whom it settles, and when."""

from __future__ import annotations

import pytest

from journal.errors import ClosedError, ConfigError, InvalidOperationError, JournalError, StateError
from journal.xa.outcomes import HEURISTIC_COMMIT, HEURISTIC_ROLLBACK
from journal.xa.policy import InDoubtPolicy, OnInDoubt
from journal.xa.resource import XaResource
from journal.xa.xid import Xid, make_xid
from tests.support.xa import MESSAGE_KIND, START_MS, MemoryJournal, MemoryLog

XID = make_xid(1, "old", "b")
YOUNG = make_xid(1, "young", "b")
AGE_MS = 1000.0


class Scene:
    """A branch in doubt since the start, another since 500 ms later, and one that is not prepared."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.journal = MemoryJournal(self.log)
        self.now_ms = START_MS
        self.resource = XaResource(self.journal, self.journal, self.log.loaded(), clock_ms=lambda: self.now_ms)
        self.branch(XID.gtrid)
        self.now_ms += AGE_MS / 2
        self.branch(YOUNG.gtrid)
        self.branch(b"working", prepared=False)

    def tx_of(self, xid: Xid) -> int:
        return next(line.tx for line in self.resource.in_doubt() if line.xid == xid)

    def branch(self, name: bytes, *, prepared: bool = True) -> None:
        xid = make_xid(1, name, "b")
        self.resource.tpc_begin(xid)
        tx = self.resource.tx(xid)
        self.journal.add(self.journal.new_id(), MESSAGE_KIND, name, tx=tx)
        self.resource.end(xid)
        if prepared:
            self.resource.tpc_prepare(xid)


def test_the_default_policy_keeps_transactions_in_doubt_for_ever() -> None:
    scene = Scene()
    assert InDoubtPolicy().apply(scene.resource, START_MS + 10**15) == []
    assert scene.resource.tpc_recover() == [XID, YOUNG]


@pytest.mark.parametrize("action", [OnInDoubt.COMMIT, OnInDoubt.ROLLBACK])
def test_what_is_old_enough_is_settled_and_its_outcome_kept(action: OnInDoubt) -> None:
    scene = Scene()
    policy = InDoubtPolicy(action, AGE_MS)
    assert policy.apply(scene.resource, START_MS + AGE_MS - 1) == []
    old = scene.tx_of(XID)
    assert policy.apply(scene.resource, START_MS + AGE_MS) == [old]
    assert policy.apply(scene.resource, START_MS + AGE_MS) == []
    assert [line.xid for line in scene.resource.in_doubt()] == [YOUNG]
    outcome = scene.resource.outcome(XID)
    assert outcome is not None
    committed = action is OnInDoubt.COMMIT
    assert outcome.decision == (HEURISTIC_COMMIT if committed else HEURISTIC_ROLLBACK)
    assert scene.log.messages() == ({b"old"} if committed else set())


def test_a_branch_that_its_coordinator_settles_meanwhile_is_left_to_it() -> None:
    scene = Scene()
    old = scene.tx_of(XID)
    scene.journal.steps.at(0, lambda: scene.resource.tpc_rollback(YOUNG))
    assert InDoubtPolicy(OnInDoubt.COMMIT, AGE_MS).apply(scene.resource, START_MS + 2 * AGE_MS) == [old]
    assert not scene.resource.in_doubt()
    assert scene.resource.outcome(YOUNG) is None
    assert scene.log.messages() == {b"old"}


def test_a_branch_that_somebody_settles_in_the_store_itself_stops_no_other() -> None:
    scene = Scene()
    young = scene.tx_of(YOUNG)
    scene.journal.rollback(scene.tx_of(XID)).wait()
    assert InDoubtPolicy(OnInDoubt.COMMIT, AGE_MS).apply(scene.resource, START_MS + 2 * AGE_MS) == [young]
    assert scene.log.messages() == {b"young"}


def refuse_next(journal: MemoryJournal, error: JournalError) -> None:
    def refuse() -> None:
        raise error

    journal.steps.at(0, refuse)


def test_a_branch_that_the_journal_refuses_to_settle_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    old, young = scene.tx_of(XID), scene.tx_of(YOUNG)
    policy = InDoubtPolicy(OnInDoubt.COMMIT, AGE_MS)
    refuse_next(scene.journal, InvalidOperationError("more than a group takes"))
    assert policy.apply(scene.resource, START_MS + 2 * AGE_MS) == [young]
    assert f"on_in_doubt cannot settle transaction {old}: more than a group takes" in caplog.text
    assert [line.xid for line in scene.resource.in_doubt()] == [XID]
    assert policy.apply(scene.resource, START_MS + 2 * AGE_MS) == [old]


@pytest.mark.parametrize("error", [ClosedError("closed"), StateError("not active")])
def test_a_policy_stops_at_a_journal_that_has_ended(error: JournalError) -> None:
    scene = Scene()
    refuse_next(scene.journal, error)
    with pytest.raises(type(error)):
        InDoubtPolicy(OnInDoubt.COMMIT, AGE_MS).apply(scene.resource, START_MS + 2 * AGE_MS)
    assert not scene.log.messages()


def test_what_has_no_xid_and_is_refused_stops_no_other() -> None:
    log = MemoryLog()
    journal = MemoryJournal(log)
    for _ in range(2):
        journal.prepare(journal.begin(), b"somebody's own")
    journal.flush()
    first, second = sorted(log.prepared)
    journal = MemoryJournal(log)
    resource = XaResource(journal, journal, log.loaded(), clock_ms=lambda: START_MS)
    refuse_next(journal, InvalidOperationError("more than a group takes"))
    assert InDoubtPolicy(OnInDoubt.COMMIT, AGE_MS).apply(resource, START_MS + AGE_MS) == [second]
    assert resource.unnamed == [first]


@pytest.mark.parametrize("action", [OnInDoubt.COMMIT, OnInDoubt.ROLLBACK])
def test_what_was_prepared_without_an_xid_is_settled_by_its_time_since_the_load(action: OnInDoubt) -> None:
    log = MemoryLog()
    journal = MemoryJournal(log)
    prepared = []
    for name in (b"one", b"two"):
        tx = journal.begin()
        journal.add(journal.new_id(), MESSAGE_KIND, name, tx=tx)
        journal.prepare(tx, b"somebody's own")
        prepared.append(tx)
    journal.flush()
    journal = MemoryJournal(log)
    resource = XaResource(journal, journal, log.loaded(), clock_ms=lambda: START_MS)
    policy = InDoubtPolicy(action, AGE_MS)
    assert policy.apply(resource, START_MS + AGE_MS - 1) == []
    journal.rollback(prepared[0]).wait()
    assert policy.apply(resource, START_MS + AGE_MS) == prepared[1:]
    assert policy.apply(resource, START_MS + AGE_MS) == []
    assert resource.unnamed == []
    assert log.messages() == ({b"two"} if action is OnInDoubt.COMMIT else set())
    assert not resource.outcomes()


@pytest.mark.parametrize(("action", "age_ms"), [(OnInDoubt.COMMIT, 0), (OnInDoubt.ROLLBACK, 0), (OnInDoubt.KEEP, -1)])
def test_a_policy_that_gives_coordinators_no_time_is_refused(action: OnInDoubt, age_ms: float) -> None:
    with pytest.raises(ConfigError):
        InDoubtPolicy(action, age_ms)
