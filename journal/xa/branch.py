"""A branch of a global transaction as its resource knows it: its states, the one table of transitions, one setter.

    ACTIVE <-> IDLE -> PREPARING -> PREPARED -> COMMITTING | ROLLING_BACK -> ENDED
       |        |  \\-> COMMITTING (one phase)
       \\--------+--> DOOMED -> ROLLING_BACK

A call that the store refuses takes the branch back to the state before it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from journal.store.transactions import NOTHING, NotDurable
from journal.xa.codes import XaCode
from journal.xa.outcomes import KeptOutcome
from journal.xa.ports import Waitable
from journal.xa.xid import Xid, refusal


class Vote(Enum):
    """The answer of a prepare."""

    COMMIT = "commit"  # the branch is in doubt now, and waits for commit or rollback
    READ_ONLY = "read only"  # nothing was done in the branch: it has ended


class BranchState(Enum):
    """The states of a branch, which decide which calls it allows."""

    ACTIVE = "active"  # at least one session works in it
    IDLE = "idle"  # no session works in it: all have ended or suspended
    DOOMED = "doomed"  # failed or timed out: it can only be rolled back
    PREPARING = "preparing"  # its prepare was sent, and may not be durable yet
    PREPARED = "prepared"  # in doubt
    COMMITTING = "committing"  # its commit was sent, and may not be durable yet
    ROLLING_BACK = "rolling back"
    ENDED = "ended"  # settled, and forgotten by the resource


_S = BranchState
_NEXT: dict[BranchState, frozenset[BranchState]] = {
    _S.ACTIVE: frozenset({_S.IDLE, _S.DOOMED}),
    _S.IDLE: frozenset({_S.ACTIVE, _S.DOOMED, _S.PREPARING, _S.COMMITTING, _S.ROLLING_BACK, _S.ENDED}),
    _S.DOOMED: frozenset({_S.ROLLING_BACK, _S.ENDED}),
    _S.PREPARING: frozenset({_S.PREPARED, _S.IDLE}),
    _S.PREPARED: frozenset({_S.COMMITTING, _S.ROLLING_BACK}),
    _S.COMMITTING: frozenset({_S.ENDED, _S.IDLE, _S.PREPARED}),
    _S.ROLLING_BACK: frozenset({_S.ENDED, _S.IDLE, _S.PREPARED, _S.DOOMED}),
    _S.ENDED: frozenset(),
}


def valid_transition(now: BranchState, then: BranchState) -> bool:
    return then in _NEXT[now]


@dataclass(slots=True)
class Branch:
    """One branch. The lock of its resource guards it."""

    xid: Xid
    state: BranchState = BranchState.ACTIVE
    tx: int = 0
    """The number of the transaction in the store; 0 until a session needs it."""
    deadline_ms: float = math.inf
    """When the branch times out unless it is prepared before, by a monotonic clock."""
    since_ms: float = 0.0
    """When the branch was prepared, as far as this process knows."""
    not_durable: NotDurable = NOTHING
    """The parts of the branch's work that a crash would lose, if this process has prepared it."""
    working: set[Hashable] = field(default_factory=set)
    """Sessions that work in it (X/Open: active associations)."""
    suspended: set[Hashable] = field(default_factory=set)
    """Sessions that have suspended their work in it."""
    doomed_as: XaCode = XaCode.RBROLLBACK
    debts: int = 0
    """How many rollbacks the branch needs: one when it was doomed, and one for each session that left it while
    doomed."""
    paid: int = 0
    """How many of the owed rollbacks have been made."""
    prepared: bool = False
    """Whether the prepare is durable. A load would then find the branch in doubt, until its settlement is durable
    too."""
    pending: Waitable | None = None
    """The completion of the prepare, commit or rollback that was accepted and is not durable yet."""
    rows: Sequence[KeptOutcome] = ()
    """The outcome records that the commit under way adds."""

    def become(self, state: BranchState) -> None:
        """Change the state; nothing else does. Raises XidError for a transition that the table does not have."""
        if not valid_transition(self.state, state):
            raise refusal(XaCode.PROTO, self.xid, f"is {self.state.value}: it cannot become {state.value}")
        self.state = state

    def doom(self, code: XaCode) -> None:
        """Note that the branch can only be rolled back from now on; other calls are told `code`."""
        self.become(BranchState.DOOMED)
        self.doomed_as = code
        self.debts += 1

    @property
    def owes_rollback(self) -> bool:
        """Whether the branch is doomed, and may still hold locks or messages of its transaction."""
        return self.paid < self.debts

    def expires(self, now_ms: float) -> bool:
        """Whether the branch has timed out. A branch that is prepared or preparing does not time out."""
        return self.deadline_ms <= now_ms and self.state in (BranchState.ACTIVE, BranchState.IDLE)

    def require_willing(self) -> None:
        """Raises XidError with a rollback code if the branch is doomed."""
        if self.state is BranchState.DOOMED:
            raise refusal(self.doomed_as, self.xid, "can only be rolled back")

    # ---- sessions --------------------------------------------------------------------------------------------------

    def join(self, session: Hashable) -> None:
        """Note that one more session works in the branch. Raises XidError (PROTO) if it works there already, or has
        suspended its work there."""
        self.require_willing()
        if session in self.working:
            raise refusal(XaCode.PROTO, self.xid, "has this session at work already")
        if session in self.suspended:
            raise refusal(XaCode.PROTO, self.xid, "was suspended by this session: resume it")
        if self.state is not BranchState.ACTIVE:
            self.become(BranchState.ACTIVE)
        self.working.add(session)

    def end(self, session: Hashable) -> None:
        """Note that a session has ended its work, suspended or not. Raises XidError (PROTO) for a session without work
        here.

        A doomed branch then needs one more rollback, because the session may have begun the journal's transaction
        again.
        """
        if session in self.suspended:
            self.suspended.remove(session)
        else:
            self._stop(session)
        if self.state is BranchState.DOOMED:
            self.debts += 1

    def suspend(self, session: Hashable) -> None:
        """Note that a session suspends its work. Raises XidError: PROTO for a session that does not work in the branch;
        a rollback code if the branch is doomed, and then the session's work has ended and cannot be resumed."""
        if self.state is BranchState.DOOMED and session in self.working:
            self.end(session)
            self.require_willing()
        self._stop(session)
        self.suspended.add(session)

    def resume(self, session: Hashable) -> None:
        """Note that a session resumes its work. Raises XidError (PROTO) for a session that has not suspended it."""
        if session not in self.suspended:
            raise refusal(XaCode.PROTO, self.xid, "was not suspended by this session")
        self.require_willing()
        self.suspended.remove(session)
        self.join(session)

    def _stop(self, session: Hashable) -> None:
        if session not in self.working:
            raise refusal(XaCode.PROTO, self.xid, "does not have this session at work")
        self.working.remove(session)
        if not self.working and self.state is BranchState.ACTIVE:
            self.become(BranchState.IDLE)

    def require_left(self) -> None:
        """Raises XidError while any session works in the branch or has suspended its work."""
        if self.working or self.suspended:
            raise refusal(
                XaCode.PROTO,
                self.xid,
                f"has sessions, {len(self.working)} at work and {len(self.suspended)} suspended: end them",
            )
