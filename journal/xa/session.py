"""`Session`: one thread of work in a resource, with the methods of a PEP 249 connection: each `tpc_*` method acts on
the session's own branch.

session.tpc_begin(session.xid(1, "order-17", "store")) store.send(message, ["queue"], tx=session.tx)
session.tpc_prepare() session.tpc_commit()
"""

from __future__ import annotations

import math
from contextlib import suppress
from enum import Enum

from journal.errors import DeadlineError, XidError
from journal.store.transactions import NotDurable
from journal.xa.branch import BranchState, Vote
from journal.xa.codes import ROLLBACKS, XaCode
from journal.xa.resource import XaResource
from journal.xa.xid import AnyXid, Xid, as_xid


class SessionState(Enum):
    """The state of a session, which decides which calls it allows."""

    FREE = "free"  # it has no branch
    WORKING = "working"  # it works in a branch
    PREPARED = "prepared"  # its branch is prepared or may be; or the commit or rollback is not done yet
    ROLLED_BACK = "rolled back"  # its branch has answered a rollback code and was forgotten; otherwise as free


_NEXT: dict[SessionState, frozenset[SessionState]] = {
    SessionState.FREE: frozenset({SessionState.WORKING}),
    SessionState.WORKING: frozenset({SessionState.FREE, SessionState.PREPARED, SessionState.ROLLED_BACK}),
    SessionState.PREPARED: frozenset({SessionState.FREE}),
    SessionState.ROLLED_BACK: frozenset({SessionState.FREE, SessionState.WORKING}),
}

_FREE = (SessionState.FREE, SessionState.ROLLED_BACK)


def valid_transition(now: SessionState, then: SessionState) -> bool:
    return then in _NEXT[now]


class Session:
    """A session, used by one thread at a time. It may suspend a branch, work in others, and resume it."""

    def __init__(self, resource: XaResource) -> None:
        self._resource = resource
        self._state = SessionState.FREE
        self._current: Xid | None = None
        self._suspended: set[Xid] = set()

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def tx(self) -> int:
        """The number of the store's transaction for the session's branch. A branch in which nothing was done is
        read-only."""
        return self._resource.tx(self._require(SessionState.WORKING))

    @property
    def not_durable(self) -> NotDurable:
        """The parts of its prepared branch that a crash would lose."""
        return self._resource.not_durable(self._require(SessionState.PREPARED))

    def xid(self, format_id: int, gtrid: bytes | str, bqual: bytes | str) -> Xid:
        return self._resource.xid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: AnyXid, *, join: bool = False, timeout_ms: float = math.inf) -> None:
        """Work in a new branch, or with `join` in a branch in which another session works or has worked."""
        xid = as_xid(xid)
        self._require(*_FREE)
        if join:
            self._resource.join(xid, session=self)
        else:
            self._resource.tpc_begin(xid, session=self, timeout_ms=timeout_ms)
        self._become(SessionState.WORKING, xid)

    def suspend(self) -> Xid:
        """Suspend the work in the branch until `resume`; until then it cannot be prepared.

        Raises XidError with a rollback code if the branch is doomed; the session has then left it, and is free.
        """
        xid = self._require(SessionState.WORKING)
        try:
            self._resource.suspend(xid, session=self)
        finally:
            self._become(SessionState.FREE)
        self._suspended.add(xid)
        return xid

    def resume(self, xid: AnyXid) -> None:
        """Work again in a branch that this session has suspended."""
        xid = as_xid(xid)
        self._require(*_FREE)
        self._resource.resume(xid, session=self)
        self._suspended.discard(xid)
        self._become(SessionState.WORKING, xid)

    def end(self, xid: AnyXid | None = None, *, failed: bool = False) -> None:
        """Leave the branch to other sessions and to its coordinator. With an xid it leaves a branch that it has
        suspended.

        Raises XidError with a rollback code if the branch is doomed; the session has then left it, and is free.
        """
        xid = self._require(SessionState.WORKING) if xid is None else as_xid(xid)
        try:
            self._resource.end(xid, session=self, failed=failed)
        finally:
            self._suspended.discard(xid)
            if self._state is SessionState.WORKING and xid == self._current:
                self._become(SessionState.FREE)

    def tpc_prepare(self) -> Vote:
        """First phase. If it is refused (because other sessions work in the branch, say), the session works in it as
        before. After a rollback code, here or in `tpc_commit`, the branch is forgotten, and a call of `tpc_rollback` is
        allowed but not needed. After a DeadlineError the branch may be prepared; `tpc_rollback` rolls it back in both
        cases."""
        xid = self._require(SessionState.WORKING)
        self._leave(xid)
        try:
            vote = self._resource.tpc_prepare(xid)
        except BaseException as error:
            self._stay_or_go(xid, error)
            raise
        self._become(SessionState.PREPARED if vote is Vote.COMMIT else SessionState.FREE, xid)
        return vote

    def tpc_commit(self, xid: AnyXid | None = None) -> None:
        """Second phase, or the only one if nothing was prepared. With an xid it settles a branch of another session,
        for recovery."""
        if xid is not None:
            xid = as_xid(xid)
            self._require(*_FREE)
            self._resource.tpc_commit(xid)
            return
        current = self._require(SessionState.WORKING, SessionState.PREPARED)
        one_phase = self._state is SessionState.WORKING
        if one_phase:
            self._leave(current)
        try:
            self._resource.tpc_commit(current, one_phase=one_phase)
        except BaseException as error:
            self._stay_or_go(current, error)
            raise
        self._become(SessionState.FREE)

    def tpc_rollback(self, xid: AnyXid | None = None) -> None:
        """Roll the session's branch back, prepared or not. With an xid it settles a branch of another session, for
        recovery."""
        if xid is not None:
            xid = as_xid(xid)
            self._require(*_FREE)
            self._resource.tpc_rollback(xid)
            return
        current = self._require(SessionState.WORKING, SessionState.PREPARED, SessionState.ROLLED_BACK)
        if self._state is SessionState.ROLLED_BACK:
            self._become(SessionState.FREE)
            return
        if self._state is SessionState.WORKING:
            self._leave(current)
        try:
            self._resource.tpc_rollback(current)
        except BaseException as error:
            self._stay_or_go(current, error)
            raise
        self._become(SessionState.FREE)

    def tpc_recover(self) -> list[Xid]:
        """Xids in doubt or with a heuristic outcome, of all sessions."""
        return self._resource.tpc_recover()

    def forget(self, xid: AnyXid) -> None:
        """Forget the heuristic outcome of `xid`, because its coordinator was told."""
        self._resource.forget(xid)

    def close(self) -> None:
        """Close the session. A branch that it works in, or has suspended, can then only be rolled back; a prepared
        branch stays."""
        working = [self._current] if self._state is SessionState.WORKING else []
        for xid in (*working, *self._suspended):
            with suppress(XidError):  # the branch was doomed, and has been rolled back already
                self.end(xid, failed=True)

    def _leave(self, xid: Xid) -> None:
        """Leave a doomed branch. The next call is told the branch's code."""
        if self._resource.state_of(xid) is BranchState.ACTIVE:
            with suppress(XidError):  # the branch has timed out a moment ago
                self._resource.end(xid, session=self)

    def _stay_or_go(self, xid: Xid, error: BaseException) -> None:
        """Set the state after an error or Ctrl-C: the state before, unless the branch is forgotten or its fate is
        unknown. A call that has run past its deadline is made again, even if the branch is forgotten by then, because
        that call learns the outcome.
        """
        found = self._resource.state_of(xid)
        late = isinstance(error, DeadlineError)
        if isinstance(error, XidError) and error.code in ROLLBACKS:
            self._become(SessionState.ROLLED_BACK)
        elif self._state is SessionState.PREPARED:
            if found is None and not late:
                self._become(SessionState.FREE)
        elif found in (BranchState.ACTIVE, BranchState.IDLE):
            self._resource.join(xid, session=self)
        elif found is not BranchState.DOOMED:
            stays = late or found in (BranchState.PREPARING, BranchState.PREPARED)
            self._become(SessionState.PREPARED if stays else SessionState.FREE, xid)

    def _require(self, *states: SessionState) -> Xid:
        """The session's branch (without meaning in FREE). Raises XidError if the session is in none of these states."""
        if self._state not in states:
            raise XidError(f"the session is {self._state.value}", code=XaCode.PROTO)
        return self._current or _NO_BRANCH

    def _become(self, state: SessionState, xid: Xid | None = None) -> None:
        """Change the state; nothing else does."""
        if not valid_transition(self._state, state):
            raise XidError(f"a session that is {self._state.value} cannot become {state.value}", code=XaCode.PROTO)
        self._state = state
        self._current = None if state in _FREE else xid


_NO_BRANCH = Xid(-1, b"", b"")
"""The null xid of X/Open."""
