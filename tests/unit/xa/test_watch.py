"""A node's `on_in_doubt` while it is active: applied when its time has come, until the end of either."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from journal.errors import (
    FullError,
    InvalidOperationError,
    JournalError,
    KafkaUnavailableError,
    LocalStorageError,
    TransactionUnknownError,
)
from journal.xa import watch as watching
from journal.xa.outcomes import HEURISTIC_COMMIT
from journal.xa.policy import InDoubtPolicy, OnInDoubt
from journal.xa.resource import XaResource
from journal.xa.watch import InDoubtWatch
from journal.xa.xid import make_xid
from tests.support.xa import MESSAGE_KIND, START_MS, Crash, MemoryJournal, MemoryLog, opened

XID = make_xid(1, "global", "branch")
ABANDONED = make_xid(1, "global", "abandoned")
AGE_MS = 1000.0
WAIT_S = 10.0
SEVERAL_LOOKS_S = 0.35
COMMIT = InDoubtPolicy(OnInDoubt.COMMIT, AGE_MS)


class Scene:
    """A node whose load found a branch in doubt, prepared at the start, and a transaction without an xid."""

    def __init__(self, policy: InDoubtPolicy) -> None:
        self.log = MemoryLog()
        journal, resource = opened(self.log)
        resource.tpc_begin(XID)
        journal.add(journal.new_id(), MESSAGE_KIND, b"branch", tx=resource.tx(XID))
        resource.end(XID)
        resource.tpc_prepare(XID)
        tx = journal.begin()
        journal.add(journal.new_id(), MESSAGE_KIND, b"unnamed", tx=tx)
        journal.prepare(tx, b"somebody's own")
        journal.flush()
        self.now_ms = START_MS
        self.stepped_ms = 0.0
        self.activate(policy)

    def activate(self, policy: InDoubtPolicy) -> None:
        self.journal = MemoryJournal(self.log)
        clock_ms, elapsed_ms = lambda: self.now_ms + self.stepped_ms, lambda: self.now_ms
        loaded = self.log.loaded()
        self.resource = XaResource(self.journal, self.journal, loaded, clock_ms=clock_ms, elapsed_ms=elapsed_ms)
        self.watch = InDoubtWatch(self.resource, policy, clock_ms=clock_ms, elapsed_ms=elapsed_ms)

    def settled(self) -> bool:
        return not self.log.prepared


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_default_keeps_what_is_in_doubt_and_says_how_much_that_is(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(InDoubtPolicy())
    caplog.clear()
    scene.now_ms += 10**15
    scene.watch.start()
    assert re.search(r"2 transactions are in doubt \(kafka-journal tx list.*\); on_in_doubt is keep", caplog.text)
    assert "in doubt: transaction " in caplog.text
    assert not scene.watch.join(SEVERAL_LOOKS_S)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)
    assert len(scene.log.prepared) == 2


def test_nothing_is_said_where_nothing_is_in_doubt(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    _, resource = opened(log)
    watch = InDoubtWatch(resource, InDoubtPolicy(), clock_ms=lambda: START_MS)
    watch.start()
    watch.stop()
    assert watch.join(WAIT_S)
    assert "in doubt" not in caplog.text


@pytest.mark.parametrize("trouble", [None, KafkaUnavailableError("no broker answers")])
@pytest.mark.parametrize("policy", [InDoubtPolicy(), COMMIT], ids=["keep", "commit"])
def test_what_an_abandoned_branch_holds_is_given_back_when_it_times_out(
    policy: InDoubtPolicy, trouble: JournalError | None
) -> None:
    scene = Scene(policy)
    scene.resource.tpc_begin(ABANDONED, timeout_ms=10)
    tx = scene.resource.tx(ABANDONED)

    def fail() -> None:
        if trouble is not None:
            raise trouble

    scene.journal.steps.at(0, fail)
    scene.watch.start()
    scene.now_ms += 10
    wait_until(lambda: "rollback accepted" in scene.journal.steps.names)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)
    with pytest.raises(TransactionUnknownError):
        scene.journal.prepare(tx, b"")
    assert len(scene.log.prepared) == 2


def test_what_becomes_old_enough_is_settled_then_and_every_branch_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(COMMIT)
    scene.watch.start()
    assert re.search(
        r"2 transactions are in doubt \(kafka-journal tx list.*\); on_in_doubt is commit, after 1 s", caplog.text
    )
    assert not scene.watch.join(SEVERAL_LOOKS_S)
    assert len(scene.log.prepared) == 2
    scene.now_ms += AGE_MS
    wait_until(scene.settled)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)
    assert scene.log.messages() == {b"branch", b"unnamed"}
    outcome = scene.resource.outcome(XID)
    assert outcome is not None
    assert outcome.decision == HEURISTIC_COMMIT
    assert caplog.text.count("on_in_doubt: commit of transaction") == 2


def test_a_watch_that_is_stopped_settles_nothing_more() -> None:
    scene = Scene(COMMIT)
    scene.watch.start()
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)
    scene.now_ms += AGE_MS
    assert len(scene.log.prepared) == 2


def test_a_wall_clock_that_steps_forward_makes_nothing_old_enough() -> None:
    scene = Scene(COMMIT)
    scene.watch.start()
    scene.stepped_ms = 10.0 * AGE_MS
    assert not scene.watch.join(SEVERAL_LOOKS_S)
    assert len(scene.log.prepared) == 2
    scene.now_ms += AGE_MS
    wait_until(scene.settled)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)


@pytest.mark.parametrize("trouble", ["refusals", "slow"])
def test_a_journal_that_is_busy_is_asked_again(trouble: str) -> None:
    scene = Scene(COMMIT)
    setattr(scene.journal, trouble, 3)
    scene.now_ms += AGE_MS
    scene.watch.start()
    wait_until(scene.settled)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)


@pytest.mark.parametrize(
    "error",
    [
        KafkaUnavailableError("no broker answers"),
        LocalStorageError("the disk is full"),
        InvalidOperationError("more than a group takes"),
    ],
)
def test_what_fails_or_is_refused_once_is_tried_another_time(error: JournalError) -> None:
    scene = Scene(COMMIT)

    def fail() -> None:
        raise error

    scene.journal.steps.at(0, fail)
    scene.now_ms += AGE_MS
    scene.watch.start()
    wait_until(scene.settled)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)


def test_a_fenced_journal_ends_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(COMMIT)
    MemoryJournal(scene.log)
    scene.now_ms += AGE_MS
    scene.watch.start()
    assert scene.watch.join(WAIT_S)
    assert "nothing in doubt is settled or timed out any more in this activation: another node is" in caplog.text
    assert len(scene.log.prepared) == 2


def test_a_rollback_that_a_crash_cut_off_is_finished_whatever_the_policy() -> None:
    scene = Scene(InDoubtPolicy())

    def crash_between() -> None:
        scene.journal.flush()
        scene.journal.steps.crash()

    scene.journal.steps.at(2, crash_between)
    with pytest.raises(Crash):
        scene.resource.settle(XID, commit=False)
    assert len(scene.log.prepared) == 2
    scene.activate(InDoubtPolicy())
    scene.watch.start()
    wait_until(lambda: len(scene.log.prepared) == 1)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)
    assert scene.log.messages() == set()


def test_a_rollback_by_hand_that_was_refused_behind_its_decision_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_EVERY_MAX_S", 0.05)
    scene = Scene(InDoubtPolicy())
    scene.watch.start()
    assert not scene.watch.join(SEVERAL_LOOKS_S)
    scene.journal.steps.at(2, lambda: setattr(scene.journal, "refusals", 1))
    with pytest.raises(FullError):
        scene.resource.settle(XID, commit=False)
    wait_until(lambda: len(scene.log.prepared) == 1)
    scene.watch.stop()
    assert scene.watch.join(WAIT_S)
