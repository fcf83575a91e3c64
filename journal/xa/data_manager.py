"""Data managers for Zope's `transaction` package: a store and other resources commit together, or not at all.

    transaction   tpc_begin   commit      tpc_vote           tpc_finish                    or: abort, tpc_abort
    the store                 (work is    prepare            commit, with an OUTCOME for   roll back
    the others                 done)      prepare            each other: the decision      roll back, unless decided
                                                             commit, then forget theirs

They are called in the order of their sort keys, and the store's is the lowest: so its commit comes first and decides.
Once that commit was sent, no other branch is rolled back here, also while the commit's outcome is unknown: a branch
that could not be finished stays in doubt, and `Coordinator.recover` settles it by the journal's outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from journal.errors import JournalError, StateError, XidError
from journal.xa.branch import BranchState, Vote
from journal.xa.codes import ROLLBACKS
from journal.xa.ports import Participant, TwoPhaseConnection
from journal.xa.resource import XaResource
from journal.xa.xid import AnyXid, Xid, as_xid, text

log = logging.getLogger(__name__)

_FIRST = "\0"
"""A prefix of the store's sort key, so that it sorts before the names of all other data managers."""


class Decision(Enum):
    """The state of a distributed transaction."""

    OPEN = "open"  # nothing is decided: the transaction works or is preparing
    DECIDING = "deciding"  # the journal's commit was sent; after an error its outcome is unknown
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


_NEXT: dict[Decision, frozenset[Decision]] = {
    Decision.OPEN: frozenset({Decision.DECIDING, Decision.ROLLED_BACK, Decision.COMMITTED}),
    Decision.DECIDING: frozenset({Decision.COMMITTED, Decision.OPEN}),
    Decision.COMMITTED: frozenset(),
    Decision.ROLLED_BACK: frozenset(),
}


def valid_transition(now: Decision, then: Decision) -> bool:
    return then in _NEXT[now]


class StoreDataManager:
    """The store's part in a transaction, and the state of the whole transaction. `Coordinator.join` makes it; one
    thread uses it."""

    def __init__(self, resource: XaResource, xid: AnyXid, manager: Any, ended: Callable[[Xid], None]) -> None:
        """`xid` is the branch, which has just begun. `ended` is called once no thread works on the transaction any
        more."""
        self.transaction_manager = manager
        self.xid = as_xid(xid)
        self._resource = resource
        self._ended = ended
        self._decision = Decision.OPEN
        self._others: list[BranchDataManager] = []
        self._enlisting = True
        self._at_work: set[Xid] = {self.xid}
        self.tx = resource.tx(self.xid)
        """The number of the store's transaction, for the operations that belong to it."""

    @property
    def decision(self) -> Decision:
        return self._decision

    def enlist(self, participant: Participant, connection: TwoPhaseConnection, xid: AnyXid) -> BranchDataManager:
        """Make a connection, on which the branch `xid` was begun, commit or roll back together with the store."""
        xid = as_xid(xid)
        if not self._enlisting:
            raise StateError("the transaction is committing or has ended: nothing can join it")
        other = BranchDataManager(self, participant, connection, xid)
        self._others.append(other)
        self._at_work.add(xid)
        return other

    def drop(self, other: BranchDataManager) -> None:
        """Note that nothing was done in a branch. It has ended with its vote, and needs no decision."""
        self._others.remove(other)

    def left(self, xid: Xid) -> None:
        """Note that this transaction has nothing more to do with a branch."""
        self._at_work.discard(xid)
        if not self._at_work:
            self._ended(self.xid)

    def confirmed(self, xid: Xid) -> None:
        """Note that a branch has committed, so that its outcome need not be kept. If forgetting it fails, a recovery
        does it."""
        try:
            self._resource.forget(xid, wait=False)
        except JournalError as error:
            log.warning("the outcome of xid %s stays until a recovery: %s", text(xid), error)

    # ---- what `transaction` calls ----------------------------------------------------------------------------------

    def sortKey(self) -> str:
        return f"{_FIRST}kafka-journal:{text(self.xid)}"

    def tpc_begin(self, transaction: object) -> None:
        self._enlisting = False

    def commit(self, transaction: object) -> None:
        """Nothing to do, because the work is done already."""
        self._resource.end(self.xid)

    def tpc_vote(self, transaction: object) -> None:
        """First phase. Without other branches, and without work in the store, there is nothing to decide."""
        try:
            vote = self._resource.tpc_prepare(self.xid, deciding=bool(self._others))
        except XidError as error:
            if error.code in ROLLBACKS:
                self._become(Decision.ROLLED_BACK)
            raise
        if vote is Vote.READ_ONLY:
            self._become(Decision.COMMITTED)
            return
        if lost := self._resource.not_durable(self.xid):
            log.info("xid %s is prepared; a crash before it is settled would take of it: %s", text(self.xid), lost)

    def tpc_finish(self, transaction: object) -> None:
        """The decision. If the journal refuses, the decision stays open, and `tpc_abort` follows. After any other error
        the outcome is unknown here, and nothing is rolled back."""
        if self._decision is not Decision.COMMITTED:
            self._decide()
        self.left(self.xid)

    def _decide(self) -> None:
        self._become(Decision.DECIDING)
        try:
            self._resource.tpc_commit(self.xid, confirm=[other.xid for other in self._others])
        except BaseException:
            if self._resource.state_of(self.xid) is BranchState.PREPARED:
                self._become(Decision.OPEN)
            raise
        self._become(Decision.COMMITTED)

    def tpc_abort(self, transaction: object) -> None:
        """Roll back the branches, unless the commit is decided, or may be decided."""
        self._enlisting = False
        try:
            if self._decision is Decision.OPEN:
                self._become(Decision.ROLLED_BACK)
                self._fail()
                self._resource.tpc_rollback(self.xid)
        finally:
            self.left(self.xid)

    abort = tpc_abort

    def _fail(self) -> None:
        """Doom the branch if it is not prepared. If its rollback is refused, `XaResource.expire` makes it later."""
        state = self._resource.state_of(self.xid)
        with suppress(XidError):  # the branch has timed out a moment ago, and is doomed already
            if state is BranchState.IDLE:
                self._resource.join(self.xid)
            if state in (BranchState.IDLE, BranchState.ACTIVE):
                self._resource.end(self.xid, failed=True)

    def _become(self, decision: Decision) -> None:
        """Change the state; nothing else does."""
        if not valid_transition(self._decision, decision):
            raise StateError(f"a transaction that is {self._decision.value} cannot become {decision.value}")
        self._decision = decision


class BranchDataManager:
    """Another resource's part in a transaction. `Coordinator.enlist` makes it."""

    def __init__(
        self, store: StoreDataManager, participant: Participant, connection: TwoPhaseConnection, xid: Xid
    ) -> None:
        self.transaction_manager = store.transaction_manager
        self.xid = xid
        self.connection = connection
        self._store = store
        self._participant = participant
        self._over = False

    def sortKey(self) -> str:
        """A sort key behind the store's."""
        return f"kafka-journal:{text(self.xid)}"

    def tpc_begin(self, transaction: object) -> None:
        """Nothing to do: the branch was begun when it was enlisted."""

    def commit(self, transaction: object) -> None:
        """Nothing to do, because the work is done already."""

    def tpc_vote(self, transaction: object) -> None:
        """First phase. An error of the participant is a vote against the commit."""
        if self.connection.tpc_prepare() is Vote.READ_ONLY:
            self._store.drop(self)
            self._leave()

    def tpc_finish(self, transaction: object) -> None:
        """Second phase. The commit is decided, so after an error a recovery finishes it."""
        if self._over:
            return
        try:
            self.connection.tpc_commit()
        except self._participant.errors as error:
            log.warning("xid %s is committed and its branch not told yet: %s", text(self.xid), error)
        else:
            self._store.confirmed(self.xid)
        self._leave()

    def tpc_abort(self, transaction: object) -> None:
        """Roll back, unless the commit is decided or may be."""
        if self._over:
            return
        if self._store.decision in (Decision.OPEN, Decision.ROLLED_BACK):
            try:
                self.connection.tpc_rollback()
            except self._participant.errors as error:
                log.warning("xid %s is not known to be rolled back, recovery will see: %s", text(self.xid), error)
        self._leave()

    abort = tpc_abort

    def _leave(self) -> None:
        self._over = True
        try:
            self.connection.close()
        except self._participant.errors as error:
            log.warning("the connection of xid %s could not be closed: %s", text(self.xid), error)
        self._store.left(self.xid)
