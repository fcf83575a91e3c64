"""Data managers for Zope's `transaction` package: a store and other resources commit together, or not at all.

    transaction   tpc_begin   commit      tpc_vote           tpc_finish                    or: abort, tpc_abort
    the store                 (work is    prepare            commit, with an OUTCOME for   roll back
    the others                 done)      prepare            each other: the decision      roll back, unless decided
                                                             commit, then forget theirs

They are called in the order of their sort keys, and the store's is the lowest: so its commit comes first and decides.
From when that commit is sent until its fate is known, and ever after, no other branch rolls back: what could not
be finished stays in doubt, and `Coordinator.recover` settles it by the journal's outcome.
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
"""The beginning of the store's sort key, which comes before the names of all other data managers."""


class Decision(Enum):
    """The state of a distributed transaction."""

    OPEN = "open"  # nothing is decided: work, or preparing
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
    """The store's part in a transaction, and the state of the whole. Made by `Coordinator.join`; used by one thread."""

    def __init__(self, resource: XaResource, xid: AnyXid, manager: Any, ended: Callable[[Xid], None]) -> None:
        """`xid` is the branch, just begun. `ended` is called once nothing of the transaction is at work."""
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
        """Have a connection, on which the branch `xid` was begun, commit or roll back with the store."""
        xid = as_xid(xid)
        if not self._enlisting:
            raise StateError("the transaction is committing or has ended: nothing can join it")
        other = BranchDataManager(self, participant, connection, xid)
        self._others.append(other)
        self._at_work.add(xid)
        return other

    def drop(self, other: BranchDataManager) -> None:
        """Nothing was done in a branch: it has ended with its vote, and needs no decision."""
        self._others.remove(other)

    def left(self, xid: Xid) -> None:
        """A branch is finished, as far as this transaction is concerned."""
        self._at_work.discard(xid)
        if not self._at_work:
            self._ended(self.xid)

    def confirmed(self, xid: Xid) -> None:
        """A branch has committed: its outcome need not be kept. If this fails, recovery does it."""
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
        """The work is done."""
        self._resource.end(self.xid)

    def tpc_vote(self, transaction: object) -> None:
        """First phase. Without other branches, and with nothing done in the store, there is nothing to decide."""
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
        """The decision. An error that leaves it open (the journal refused) is followed by `tpc_abort`; after any
        other nobody here knows, and nothing is rolled back.
        """
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
        """Roll back what is not decided."""
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
        """Doom the branch if it is not prepared: `XaResource.expire` makes up for a rollback that was refused."""
        state = self._resource.state_of(self.xid)
        with suppress(XidError):  # it has timed out just now, and is doomed already
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
    """Another resource's part in a transaction. Made by `Coordinator.enlist`."""

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
        """The work is done."""

    def tpc_vote(self, transaction: object) -> None:
        """First phase. An error of the participant is a vote against the commit."""
        if self.connection.tpc_prepare() is Vote.READ_ONLY:
            self._store.drop(self)
            self._leave()

    def tpc_finish(self, transaction: object) -> None:
        """Second phase. The commit is decided: after an error recovery finishes it."""
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
