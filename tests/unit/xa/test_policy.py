"""`on_in_doubt`: whom it settles, and when."""

from __future__ import annotations

import pytest

from journal.errors import ConfigError
from journal.xa.outcomes import HEURISTIC_COMMIT, HEURISTIC_ROLLBACK
from journal.xa.policy import InDoubtPolicy, OnInDoubt
from journal.xa.resource import XaResource
from journal.xa.xid import make_xid
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

    def branch(self, name: bytes, *, prepared: bool = True) -> None:
        xid = make_xid(1, name, "b")
        self.resource.tpc_begin(xid)
        tx = self.resource.tx(xid)
        self.journal.add(self.journal.new_id(), MESSAGE_KIND, name, tx=tx)
        self.resource.end(xid)
        if prepared:
            self.resource.tpc_prepare(xid)


def test_the_default_keeps_them_for_ever() -> None:
    scene = Scene()
    assert InDoubtPolicy().apply(scene.resource, START_MS + 10**15) == []
    assert scene.resource.tpc_recover() == [XID, YOUNG]


@pytest.mark.parametrize("action", [OnInDoubt.COMMIT, OnInDoubt.ROLLBACK])
def test_what_is_old_enough_is_settled_and_its_outcome_kept(action: OnInDoubt) -> None:
    scene = Scene()
    policy = InDoubtPolicy(action, AGE_MS)
    assert policy.apply(scene.resource, START_MS + AGE_MS - 1) == []
    assert [line.xid for line in policy.apply(scene.resource, START_MS + AGE_MS)] == [XID]
    assert policy.apply(scene.resource, START_MS + AGE_MS) == []
    assert [line.xid for line in scene.resource.in_doubt()] == [YOUNG]
    outcome = scene.resource.outcome(XID)
    assert outcome is not None
    committed = action is OnInDoubt.COMMIT
    assert outcome.decision == (HEURISTIC_COMMIT if committed else HEURISTIC_ROLLBACK)
    assert scene.log.messages() == ({b"old"} if committed else set())


@pytest.mark.parametrize(("action", "age_ms"), [(OnInDoubt.COMMIT, 0), (OnInDoubt.ROLLBACK, 0), (OnInDoubt.KEEP, -1)])
def test_a_policy_that_gives_coordinators_no_time_is_refused(action: OnInDoubt, age_ms: float) -> None:
    with pytest.raises(ConfigError):
        InDoubtPolicy(action, age_ms)
