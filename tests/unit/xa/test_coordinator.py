"""Distributed transactions of a store and a database: who is asked what, in which order, and what an error means."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import pytest
import transaction  # type: ignore[import-untyped]

from journal.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    FullError,
    JournalError,
    StateError,
    TransactionUnknownError,
    XidError,
)
from journal.xa.branch import BranchState
from journal.xa.codes import XaCode
from journal.xa.coordinator import FORMAT_ID, Coordinator, Recovery
from journal.xa.data_manager import Decision, StoreDataManager, valid_transition
from journal.xa.resource import XaResource
from journal.xa.session import Session
from journal.xa.xid import Xid, make_xid
from tests.support.xa import (
    MESSAGE_KIND,
    START_MS,
    DatabaseError,
    MemoryConnection,
    MemoryDatabase,
    MemoryJournal,
    MemoryLog,
    opened,
)

ALLOWED = {
    ("OPEN", "COMMITTED"),
    ("OPEN", "DECIDING"),
    ("OPEN", "ROLLED_BACK"),
    ("DECIDING", "COMMITTED"),
    ("DECIDING", "OPEN"),
}
_INSTANCES = (f"{number:016x}" for number in itertools.count())


class Scene:
    """A journal and a database in one transaction, whose steps are noted together."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.log = MemoryLog()
        self.database = MemoryDatabase()
        self.manager = transaction.TransactionManager()
        self.journal: MemoryJournal
        self.resource: XaResource
        self.restart()

    def restart(self) -> None:
        self.journal, self.resource = opened(self.log, clock_ms=lambda: self.now_ms)
        self.database.steps = self.journal.steps
        self.coordinator = Coordinator(self.resource, "test", [self.database], instance=next(_INSTANCES))

    def work(self, *, timeout_ms: float = math.inf) -> StoreDataManager:
        """A message and a row, not committed."""
        work = self.coordinator.join(self.manager, timeout_ms=timeout_ms)
        self.journal.add(self.journal.new_id(), MESSAGE_KIND, b"both", tx=work.tx)
        connection = self.coordinator.enlist(work, self.database)
        assert isinstance(connection, MemoryConnection)
        connection.insert(b"both")
        return work

    @property
    def agreed(self) -> bool | None:
        """Whether both have committed (True) or neither has; None while something is in doubt or owed."""
        assert self.database.committed == self.log.messages()
        if self.log.prepared or self.database.prepared or self.log.loaded().outcomes:
            return None
        return bool(self.database.committed)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(("now", "then"), list(itertools.product(Decision, repeat=2)))
def test_a_decision_changes_only_as_the_table_says(now: Decision, then: Decision) -> None:
    assert valid_transition(now, then) == ((now.name, then.name) in ALLOWED)


def test_all_prepare_then_the_journal_decides_then_the_others_commit_and_their_outcomes_go(scene: Scene) -> None:
    work = scene.work()
    scene.manager.commit()
    called = [name for name in scene.journal.steps.names if name.endswith(("called", "durable"))]
    assert called == [
        "database connect called",
        "prepare called",
        "prepare durable",
        "database prepare called",
        "commit called",
        "commit durable",
        "database commit called",
        "delete called",
    ]
    scene.journal.flush()
    assert scene.agreed is True
    assert work.decision is Decision.COMMITTED


def test_a_store_in_which_nothing_was_done_decides_for_others_and_else_writes_nothing(scene: Scene) -> None:
    alone = scene.coordinator.join(scene.manager)
    scene.manager.commit()
    assert alone.decision is Decision.COMMITTED
    assert {name.split()[0] for name in scene.journal.steps.names} <= {"rollback"}
    work = scene.coordinator.join(scene.manager)
    connection = scene.coordinator.enlist(work, scene.database)
    assert isinstance(connection, MemoryConnection)
    connection.insert(b"row")
    scene.manager.commit()
    assert scene.database.committed == {b"row"}
    assert "commit durable" in scene.journal.steps.names
    scene.journal.flush()
    assert not scene.log.loaded().outcomes


def test_an_abort_rolls_back_all_and_prepares_nothing(scene: Scene) -> None:
    work = scene.work()
    scene.manager.abort()
    scene.journal.flush()
    assert scene.agreed is False
    assert work.decision is Decision.ROLLED_BACK
    assert "prepare called" not in scene.journal.steps.names


def test_a_participants_no_rolls_back_all(scene: Scene) -> None:
    scene.work()
    scene.database.down = True
    with pytest.raises(DatabaseError):
        scene.manager.commit()
    scene.manager.abort()
    assert scene.agreed is False


@pytest.mark.parametrize("refused_at", ["prepare", "commit"])
def test_a_journal_that_refuses_its_prepare_or_the_decision_rolls_back_all(scene: Scene, refused_at: str) -> None:
    scene.work()
    steps = {"prepare": 0, "commit": 6}
    scene.journal.steps.at(steps[refused_at], lambda: setattr(scene.journal, "refusals", 1))
    with pytest.raises(FullError):
        scene.manager.commit()
    scene.manager.abort()
    assert scene.journal.steps.names.count("commit accepted") == 0
    assert scene.agreed is False


def test_while_nobody_knows_the_decision_nobody_is_rolled_back(scene: Scene) -> None:
    work = scene.work()
    scene.journal.steps.at(6, lambda: setattr(scene.journal, "slow", 1))
    with pytest.raises(DeadlineError):
        scene.manager.commit()
    scene.manager.abort()
    assert work.decision is Decision.DECIDING
    assert scene.database.prepared
    found = scene.coordinator.recover()
    assert [xid.bqual for xid in found.committed] == [b"database"]
    assert scene.database.committed == {b"both"}


def test_a_participant_that_cannot_be_told_is_told_by_a_recovery(scene: Scene) -> None:
    scene.work()
    scene.journal.steps.at(9, lambda: setattr(scene.database, "down", True))
    scene.manager.commit()
    assert scene.log.messages()
    assert not scene.database.committed
    assert scene.coordinator.recover().unreachable == ["database"]
    assert scene.log.loaded().outcomes
    scene.database.down = False
    found = scene.coordinator.recover()
    assert len(found.committed) == len(found.forgotten) == 1
    assert scene.agreed is True
    assert scene.coordinator.recover() == Recovery()


@pytest.mark.parametrize("step", range(14))
def test_a_recovery_leaves_transactions_at_work_alone(scene: Scene, step: int) -> None:
    recovered: list[Recovery] = []
    scene.work()
    scene.journal.steps.at(step, lambda: recovered.append(scene.coordinator.recover()))
    scene.manager.commit()
    assert recovered == [Recovery()]
    scene.journal.flush()
    assert scene.agreed is True


def test_a_recovery_leaves_alone_what_other_coordinators_have_prepared(scene: Scene) -> None:
    others = [
        make_xid(FORMAT_ID, "tests.0.1", "database"),
        make_xid(FORMAT_ID, "test.0.1", "other"),
        make_xid(1, "test.0.1", "database"),
    ]
    for xid in others:
        scene.database.prepared[xid] = {b"theirs"}
    assert scene.coordinator.recover() == Recovery()
    assert set(scene.database.prepared) == set(others)


def voted(scene: Scene) -> Xid:
    """The store's branch of a transaction that both have prepared, and nobody has decided."""
    work = scene.work()
    for call in (work.tpc_begin, work.commit, work.tpc_vote):
        call(None)
    xid = work.xid
    scene.database.prepared[make_xid(xid.format_id, xid.gtrid, "database")] = {b"both"}
    return xid


@pytest.mark.parametrize("commit", [True, False])
def test_participants_follow_when_the_stores_branch_is_settled_by_hand(scene: Scene, commit: bool) -> None:
    xid = voted(scene)
    scene.restart()
    scene.resource.settle(xid, commit=commit)
    scene.database.down = True
    assert scene.coordinator.recover().forgotten == []
    assert scene.resource.tpc_recover() == [xid]
    scene.database.down = False
    assert scene.coordinator.recover().forgotten == [xid]
    assert not scene.resource.tpc_recover()
    assert scene.agreed is commit
    assert scene.coordinator.recover() == Recovery()


def test_an_outcome_is_kept_while_a_participants_branch_could_not_be_told(scene: Scene) -> None:
    xid = voted(scene)
    scene.restart()
    scene.resource.settle(xid, commit=True)
    scene.journal.steps.at(2, lambda: setattr(scene.database, "down", True))
    assert scene.coordinator.recover().unreachable == ["database"]
    assert scene.database.prepared
    scene.database.down = False
    scene.coordinator.recover()
    assert scene.agreed is True


def settle_by_hand(scene: Scene, xids: Iterable[Xid]) -> None:
    """Prepare branches with a message each, and have them committed."""
    resource = scene.resource
    for xid in xids:
        resource.tpc_begin(xid)
        scene.journal.add(scene.journal.new_id(), MESSAGE_KIND, b"by hand", tx=resource.tx(xid))
        resource.end(xid)
        resource.tpc_prepare(xid)
        resource.settle(xid, commit=True)


def test_an_outcome_that_another_coordinator_has_to_hear_of_is_kept(scene: Scene) -> None:
    others = [make_xid(FORMAT_ID, "tests.0.1", "store"), make_xid(1, "test.0.1", "store")]
    settle_by_hand(scene, others)
    assert scene.coordinator.recover() == Recovery()
    assert scene.resource.tpc_recover() == others


def test_a_rollback_by_hand_that_is_not_finished_is_not_forgotten(scene: Scene) -> None:
    xid = voted(scene)
    scene.restart()
    scene.journal.steps.at(2, lambda: setattr(scene.journal, "refusals", 1))
    with pytest.raises(FullError):
        scene.resource.settle(xid, commit=False)
    assert scene.coordinator.recover() == Recovery()
    assert scene.resource.outcome(xid) is not None
    scene.resource.finish()
    assert scene.coordinator.recover().forgotten == [xid]
    assert scene.agreed is False


def test_a_recovery_goes_on_when_another_settles_a_branch_just_then(scene: Scene) -> None:
    first = voted(scene)
    scene.manager = transaction.TransactionManager()
    second = voted(scene)
    scene.restart()
    scene.journal.steps.at(0, lambda: scene.resource.tpc_rollback(second))
    found = scene.coordinator.recover()
    assert [xid for xid in found.rolled_back if xid.bqual == b"store"] == [first]
    assert scene.agreed is False


def test_a_recovery_goes_on_when_an_outcome_is_forgotten_by_hand_just_then(scene: Scene) -> None:
    xid = voted(scene)
    scene.restart()
    scene.resource.settle(xid, commit=True)
    scene.journal.steps.at(0, lambda: scene.resource.forget(xid))
    assert scene.coordinator.recover().forgotten == []
    assert not scene.resource.outcomes()


def test_a_transaction_whose_prepare_is_past_its_deadline_is_rolled_back(scene: Scene) -> None:
    work = scene.work()
    scene.journal.slow = 1
    with pytest.raises(DeadlineError):
        scene.manager.commit()
    scene.manager.abort()
    assert scene.resource.state_of(work.xid) is None
    assert scene.agreed is False


def test_what_a_refused_abort_leaves_is_given_back(scene: Scene) -> None:
    work = scene.work()
    scene.journal.refusals = 2  # the prepare and the rollback
    with pytest.raises(FullError):
        scene.manager.commit()
    scene.manager.abort()
    assert scene.resource.expire() == [work.xid]
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(work.tx, b"")
    assert scene.agreed is False


@pytest.mark.parametrize("expire", [True, False])
def test_a_transaction_that_takes_too_long_aborts(scene: Scene, expire: bool) -> None:
    work = scene.work(timeout_ms=5)
    scene.now_ms += 5
    if expire:
        scene.resource.expire()
    with pytest.raises(XidError) as raised:
        scene.manager.commit()
    assert raised.value.code == XaCode.RBTIMEOUT
    scene.manager.abort()
    assert work.decision is Decision.ROLLED_BACK
    assert scene.resource.state_of(work.xid) is None
    assert scene.agreed is False


def test_transactions_whose_aborts_were_refused_leave_room_for_others(scene: Scene) -> None:
    resource = XaResource(scene.journal, scene.journal, scene.log.loaded(), clock_ms=lambda: START_MS, branches_max=2)
    coordinator = Coordinator(resource, "test", [], instance=next(_INSTANCES))
    for _ in range(5):
        coordinator.join(scene.manager)
        scene.journal.refusals = 2  # the prepare and the rollback
        with pytest.raises(FullError):
            scene.manager.commit()
        scene.manager.abort()
        assert len(resource.expire()) == 1


def test_a_transaction_whose_time_is_over_while_it_aborts_is_rolled_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = scene.work(timeout_ms=5)
    work.tpc_begin(None)
    work.commit(None)
    state_of = scene.resource.state_of

    def time_passes(xid: Xid) -> BranchState | None:
        found = state_of(xid)
        scene.now_ms += 5
        return found

    monkeypatch.setattr(scene.resource, "state_of", time_passes)
    scene.manager.abort()
    assert scene.resource.state_of(work.xid) is None
    assert scene.agreed is False


def test_nothing_joins_a_transaction_that_is_over(scene: Scene) -> None:
    work = scene.work()
    scene.manager.commit()
    with pytest.raises(StateError):
        scene.coordinator.enlist(work, scene.database)


@pytest.mark.parametrize("wrong", [None, "1:test:store", (1, b"test"), (1, b"h" * 100, b""), Xid(1, b"", b"")])
def test_data_managers_take_nothing_that_is_no_xid(scene: Scene, wrong: Any) -> None:
    work = scene.work()
    with pytest.raises(XidError) as raised:
        StoreDataManager(scene.resource, wrong, scene.manager, lambda xid: None)
    assert raised.value.code == XaCode.INVAL
    with pytest.raises(XidError) as raised:
        work.enlist(scene.database, scene.database.connect(), wrong)
    assert raised.value.code == XaCode.INVAL
    scene.manager.commit()
    assert scene.database.committed == scene.log.messages() == {b"both"}


def test_a_data_manager_takes_a_plain_tuple(scene: Scene) -> None:
    scene.resource.tpc_begin((1, "plain", "store"))
    work = StoreDataManager(scene.resource, (1, "plain", "store"), scene.manager, lambda xid: None)
    assert work.xid == make_xid(1, "plain", "store")
    other = work.enlist(scene.database, scene.database.connect(), (1, "plain", "database"))
    assert other.xid == make_xid(1, "plain", "database")


class Store:
    """Another store as a participant: its sessions are PEP 249's connections."""

    name = "second"
    errors: tuple[type[Exception], ...] = (JournalError,)

    def __init__(self, resource: XaResource) -> None:
        self._resource = resource

    def connect(self) -> Session:
        return Session(self._resource)


def with_store(scene: Scene, resource: XaResource) -> tuple[Coordinator, Store]:
    """A coordinator of the scene's store and another one."""
    store = Store(resource)
    return Coordinator(scene.resource, "test", [store], instance=next(_INSTANCES)), store


def test_a_store_whose_branch_has_failed_rolls_all_back_and_nothing_is_left(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    _, resource = opened(MemoryLog())
    coordinator, store = with_store(scene, resource)
    work = coordinator.join(scene.manager)
    coordinator.enlist(work, store)
    other = Session(resource)
    xid = work.xid._replace(bqual=b"second")
    other.tpc_begin(xid, join=True)
    other.end(failed=True)
    with pytest.raises(XidError) as raised:
        scene.manager.commit()
    assert raised.value.code == XaCode.RBROLLBACK
    scene.manager.abort()
    assert resource.state_of(xid) is None
    assert not caplog.records
    assert scene.agreed is False


def test_a_store_is_a_participant_of_another(scene: Scene) -> None:
    log = MemoryLog()
    journal, resource = opened(log)
    coordinator, store = with_store(scene, resource)
    work = coordinator.join(scene.manager)
    session = coordinator.enlist(work, store)
    assert isinstance(session, Session)
    journal.add(journal.new_id(), MESSAGE_KIND, b"there", tx=session.tx)
    scene.manager.commit()
    assert log.messages() == {b"there"}


def test_a_store_that_is_slow_to_commit_commits_after_its_crash_too(scene: Scene) -> None:
    log = MemoryLog()
    journal, resource = opened(log)
    coordinator, store = with_store(scene, resource)
    work = coordinator.join(scene.manager)
    scene.journal.add(scene.journal.new_id(), MESSAGE_KIND, b"here", tx=work.tx)
    session = coordinator.enlist(work, store)
    assert isinstance(session, Session)
    journal.add(journal.new_id(), MESSAGE_KIND, b"there", tx=session.tx)
    # its prepare is waited for, its commit not long enough: neither by the transaction nor by a recovery
    journal.steps.at(4, lambda: setattr(journal, "slow", 2))
    scene.manager.commit()
    assert coordinator.recover().unreachable == ["second"]
    journal.lose()
    coordinator, _ = with_store(scene, opened(log)[1])
    assert [xid.bqual for xid in coordinator.recover().committed] == [b"second"]
    assert log.messages() == {b"there"}
    scene.journal.flush()
    assert scene.log.loaded().outcomes == []


def settled_by_hand(scene: Scene, log: MemoryLog, *, commit: bool) -> tuple[Coordinator, XaResource, list[Xid]]:
    """Two committed transactions of which another store has not committed its branches; the first of these is settled
    there by hand. Their coordinator, that store's resource, and the branches."""
    journal, resource = opened(log)
    coordinator, store = with_store(scene, resource)
    xids = []
    for number in range(2):
        work = coordinator.join(scene.manager)
        session = coordinator.enlist(work, store)
        assert isinstance(session, Session)
        journal.add(journal.new_id(), MESSAGE_KIND, b"%d" % number, tx=session.tx)
        xids.append(work.xid._replace(bqual=b"second"))
        journal.steps.at(4, lambda: setattr(journal, "refusals", 1))
        scene.manager.commit()
    resource.settle(xids[0], commit=commit)
    return coordinator, resource, xids


def test_a_branch_settled_by_hand_as_was_decided_is_recovered_and_forgotten(scene: Scene) -> None:
    log = MemoryLog()
    coordinator, resource, xids = settled_by_hand(scene, log, commit=True)
    found = coordinator.recover()
    assert set(found.committed) == set(found.forgotten) == set(xids)
    assert not found.unreachable
    assert resource.tpc_recover() == []
    assert log.messages() == {b"0", b"1"}


def test_a_branch_settled_by_hand_otherwise_keeps_no_other_from_being_told(scene: Scene) -> None:
    log = MemoryLog()
    coordinator, resource, xids = settled_by_hand(scene, log, commit=False)
    found = coordinator.recover()
    assert found.committed == found.forgotten == xids[1:]
    assert found.unreachable == ["second"]
    assert resource.tpc_recover() == xids[:1]
    assert log.messages() == {b"1"}
    resource.forget(xids[0])  # somebody has mended it
    assert coordinator.recover().forgotten == xids[:1]


def undecided(scene: Scene, log: MemoryLog, count: int = 2) -> tuple[Coordinator, MemoryJournal, XaResource, list[Xid]]:
    """Transactions that another store has prepared, and that nobody has decided. A coordinator that finds them left,
    that store's journal and resource, and its branches."""
    journal, resource = opened(log)
    coordinator, store = with_store(scene, resource)
    xids = []
    for number in range(count):
        work = coordinator.join(transaction.TransactionManager())
        session = coordinator.enlist(work, store)
        assert isinstance(session, Session)
        journal.add(journal.new_id(), MESSAGE_KIND, b"%d" % number, tx=session.tx)
        session.tpc_prepare()
        xids.append(work.xid._replace(bqual=b"second"))
    scene.restart()
    return with_store(scene, resource)[0], journal, resource, xids


def test_a_branch_whose_settlement_by_hand_is_not_finished_keeps_no_other_from_being_told(scene: Scene) -> None:
    coordinator, journal, resource, xids = undecided(scene, MemoryLog())
    journal.steps.at(2, lambda: setattr(journal, "refusals", 1))
    with pytest.raises(FullError):
        resource.settle(xids[0], commit=False)
    found = coordinator.recover()
    assert (found.rolled_back, found.unreachable) == (xids[1:], ["second"])
    resource.finish()
    assert coordinator.recover().rolled_back == xids[:1]
    assert resource.tpc_recover() == []


def test_a_branch_whose_settlement_by_hand_somebody_else_forgets_just_then_knows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, _, resource, xids = undecided(scene, MemoryLog())
    resource.settle(xids[0], commit=False)
    forget = resource.forget

    def forgotten_before(xid: Xid) -> None:
        forget(xid)
        forget(xid)

    monkeypatch.setattr(resource, "forget", forgotten_before)
    found = coordinator.recover()
    assert (found.rolled_back, found.unreachable) == (xids[1:], [])
    assert resource.tpc_recover() == []


@pytest.mark.parametrize(("fault", "call"), [("slow", "rollback awaited"), ("refusals", "rollback called")])
def test_a_recovery_waits_once_for_a_store_that_is_slow_or_full(scene: Scene, fault: str, call: str) -> None:
    coordinator, journal, resource, xids = undecided(scene, MemoryLog(), 5)
    setattr(journal, fault, 5)
    assert coordinator.recover().unreachable == ["second"]
    assert journal.steps.names.count(call) == 1
    setattr(journal, fault, 0)
    assert set(coordinator.recover().rolled_back) == set(xids)
    assert resource.tpc_recover() == []


def test_a_recovery_that_another_node_fences_says_so_whatever_its_participants_raise(scene: Scene) -> None:
    coordinator, _, resource, xids = undecided(scene, MemoryLog())
    MemoryJournal(scene.log)
    with pytest.raises(FencedError):
        coordinator.recover()
    assert resource.tpc_recover() == xids


def test_a_branch_settled_otherwise_keeps_no_outcome_but_that_of_its_own_transaction(scene: Scene) -> None:
    coordinator, _, resource, xids = undecided(scene, MemoryLog())
    stores = [xid._replace(bqual=b"store") for xid in xids]
    settle_by_hand(scene, stores)
    resource.settle(xids[0], commit=False)
    found = coordinator.recover()
    assert (found.committed, found.forgotten, found.unreachable) == (xids[1:], stores[1:], ["second"])
    assert [kept.xid for kept in scene.resource.outcomes()] == stores[:1]
    resource.forget(xids[0])  # somebody has mended it
    assert coordinator.recover() == Recovery(forgotten=stores[:1])


def test_a_connection_that_cannot_be_closed_is_named_and_hides_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def close(_: MemoryConnection) -> None:
        raise DatabaseError("lost")

    voted(scene)
    scene.restart()
    monkeypatch.setattr(MemoryConnection, "close", close)
    found = scene.coordinator.recover()
    assert (len(found.rolled_back), found.unreachable) == (2, [])
    assert "the connection to participant database could not be closed: lost" in caplog.text


def test_a_store_in_which_nothing_was_done_is_told_nothing_and_owes_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    _, resource = opened(MemoryLog())
    coordinator, store = with_store(scene, resource)
    work = coordinator.join(scene.manager)
    scene.journal.add(scene.journal.new_id(), MESSAGE_KIND, b"here", tx=work.tx)
    coordinator.enlist(work, store)
    scene.manager.commit()
    assert not caplog.records
    assert scene.log.messages() == {b"here"}
    assert scene.log.loaded().outcomes == []


@pytest.mark.parametrize(
    ("manager", "timeout_ms", "error"),
    [
        (transaction.TransactionManager(explicit=True), math.inf, transaction.interfaces.NoTransaction),
        (transaction.TransactionManager(), 0, XidError),
    ],
    ids=["a manager without a transaction", "a branch that has no time"],
)
def test_a_data_manager_that_cannot_join_leaves_no_branch(
    manager: transaction.TransactionManager, timeout_ms: float, error: type[Exception]
) -> None:
    log = MemoryLog()
    journal = MemoryJournal(log)
    resource = XaResource(journal, journal, log.loaded(), clock_ms=lambda: START_MS, branches_max=1)
    resource.start()
    coordinator = Coordinator(resource, "test", [], instance=next(_INSTANCES))
    for _ in range(2):
        with pytest.raises(error):
            coordinator.join(manager, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("name", "participants", "instance"),
    [
        ("", ["a"], "0" * 16),
        ("Orders", ["a"], "0" * 16),
        ("o" * 33, ["a"], "0" * 16),
        ("orders", ["a", "a"], "0" * 16),
        ("orders", ["store"], "0" * 16),
        ("orders", ["a"], "0" * 15),
    ],
)
def test_names_that_could_be_mistaken_are_refused(name: str, participants: list[str], instance: str) -> None:
    with pytest.raises(ConfigError):
        Coordinator(opened(MemoryLog())[1], name, [MemoryDatabase(each) for each in participants], instance=instance)


def test_a_participant_whose_name_is_no_bqual_is_refused() -> None:
    with pytest.raises(XidError):
        Coordinator(opened(MemoryLog())[1], "orders", [MemoryDatabase("d" * 65)], instance="0" * 16)
