"""`XaResource`: branches of global transactions in a store, by xid, with PEP 249's names and X/Open's rules.

    loader = QueueLoader()
    journal.activate(loader)
    resource = XaResource(store, journal, loader.loaded)
    resource.start()

The effect of a call is durable when it returns. A refusal (XidError, or an error of the store) changes nothing. An xid
is an `Xid` or a plain tuple of its parts, and is checked before anything else (XidError, INVAL). A commit or rollback
that is called again after a DeadlineError waits for the first one; if that became durable meanwhile, the answer is
NOTA. After an error of the journal itself (fenced, outcome unknown) the branch keeps its last state, and the next load
shows its outcome.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from journal.append.callbacks import CallersLock
from journal.append.completion import completed
from journal.append.interrupted import is_refusal
from journal.errors import (
    CallerError,
    ClosedError,
    FullError,
    OutcomeUnknownError,
    StateError,
    TransactionUnknownError,
    XidError,
)
from journal.process.clocks import monotonic_ms, wall_ms
from journal.process.commands import command
from journal.store.transactions import NOTHING, NotDurable
from journal.v1.journal_pb2 import ADD, DELETE
from journal.v1.store_pb2 import OUTCOME
from journal.xa.branch import Branch, BranchState, Vote
from journal.xa.branches import Branches, InDoubt
from journal.xa.codes import ROLLBACKS, XaCode
from journal.xa.outcomes import COMMITTED, HEURISTIC, HEURISTIC_COMMIT, HEURISTIC_ROLLBACK, KeptOutcome, Outcomes
from journal.xa.ports import ClockMs, LoadedRows, OutcomeRecords, SaysNotDurable, Transactions, Waitable
from journal.xa.xid import AnyXid, Xid, as_xid, encode_xid, make_xid, refusal, text

log = logging.getLogger(__name__)

BRANCHES_MAX = 100_000
WAIT_S = 60.0
WARNINGS_MAX = 20
"""The most transactions in doubt that a warning names one by one."""


class XaResource:
    """The branches in one store. Thread-safe. Each call blocks until its effect is durable, and holds no lock while it
    waits.

    A `session` is what X/Open calls a thread of control: it works in branches, and ends, suspends and resumes only its
    own work. Calls without a session all belong to one session, for programs that need only one.
    """

    def __init__(
        self,
        transactions: Transactions,
        records: OutcomeRecords,
        loaded: LoadedRows,
        *,
        clock_ms: ClockMs = wall_ms,
        elapsed_ms: ClockMs = monotonic_ms,
        wait_s: float = WAIT_S,
        branches_max: int = BRANCHES_MAX,
    ) -> None:
        """`transactions` is the store, `records` its journal (one object may be both), `loaded` the result of its load.

        `clock_ms` says when a branch was prepared; its time-out is measured by `elapsed_ms`, a monotonic clock.
        `wait_s` bounds each wait for durability, `branches_max` the branches that are not settled.
        """
        self._transactions = transactions
        self._records = records
        self._clock_ms = clock_ms
        self._elapsed_ms = elapsed_ms
        self._wait_s = wait_s
        self._lock = CallersLock()
        self._outcomes = Outcomes(records, loaded)
        self._branches = Branches(self._outcomes, loaded, clock_ms, elapsed_ms, branches_max)
        self.unnamed = self._branches.unnamed
        """Transactions that were prepared without an xid, or with the xid of another one. `settle_unnamed` settles
        them."""
        self.loaded_ms = clock_ms()
        """When this object was made. The age of branches whose prepare has no time counts from here."""

    def start(self) -> None:
        """Finish heuristic rollbacks that a crash interrupted, and log a warning about transactions in doubt."""
        self.finish()
        self.warn()

    def finish(self) -> None:
        """Roll back branches in doubt that have a heuristic outcome of rollback: a crash came between the outcome and
        the rollback.

        If the journal refuses one rollback, the others are still made.
        """
        for line in self.in_doubt():
            if self.outcome(line.xid) is None:
                continue
            try:
                self.settle(line.xid, commit=False)
            except (XidError, TransactionUnknownError) as error:
                log.info("transaction %d was settled meanwhile: %s", line.tx, error)
            except (ClosedError, StateError):
                raise
            except CallerError as error:
                log.warning("transaction %d, xid %s, is not rolled back: %s", line.tx, text(line.xid), error)

    def warn(self) -> None:
        """Log a warning that names the transactions in doubt."""
        found = [f"transaction {line.tx}, xid {text(line.xid)}" for line in self.in_doubt()]
        found += [f"transaction {tx}, prepared without an xid of its own" for tx in self.unnamed]
        for each in found[:WARNINGS_MAX]:
            log.warning("in doubt: %s", each)
        if len(found) > WARNINGS_MAX:
            log.warning("in doubt: %d more (%s)", len(found) - WARNINGS_MAX, command("tx list"))

    # ---- PEP 249 ---------------------------------------------------------------------------------------------------

    def xid(self, format_id: int, gtrid: bytes | str, bqual: bytes | str) -> Xid:
        """Make an xid. Raises XidError for parts out of range."""
        return make_xid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: AnyXid, *, session: Hashable = None, timeout_ms: float = math.inf) -> None:
        """Begin a branch in which `session` works. If it is not prepared within `timeout_ms` it can only be rolled
        back.

        Raises XidError (DUPID) for an xid that is in use or has a kept outcome, FullError over `branches_max`.
        """
        xid = as_xid(xid)
        with self._lock:
            self._branches.begin(xid, session, timeout_ms)

    def tpc_prepare(self, xid: AnyXid, *, deciding: bool = False) -> Vote:
        """Make the branch wait, through every crash, for commit or rollback. If nothing was done in it, end it.

        With `deciding` it waits in any case, because its commit will keep the outcomes of other branches (`confirm`).
        `not_durable` gives the parts of it that a crash would lose nevertheless. Raises XidError: NOTA, PROTO, or a
        rollback code: the branch was doomed or had timed out; it is rolled back and gone.
        """
        xid = as_xid(xid)
        with self._ending_the_doomed(xid), self._lock:
            branch = self._branches.require(xid)
            branch.require_willing()
            branch.require_left()
            if not deciding and branch.state is BranchState.IDLE and self._did_nothing(branch):
                self._branches.end(branch)
                return Vote.READ_ONLY
            self._tx(branch)
            before, since_ms = branch.state, self._clock_ms()
            data = encode_xid(xid, since_ms)
            branch.become(BranchState.PREPARING)
            branch.since_ms = since_ms
        self._carry_out(branch, before, lambda: self._prepared(branch, data))
        return Vote.COMMIT

    def tpc_commit(self, xid: AnyXid, *, one_phase: bool = False, confirm: Sequence[AnyXid] = ()) -> None:
        """Commit a prepared branch, or with `one_phase` a branch that is not prepared.

        The same group adds an outcome for each branch in `confirm`, which is kept until `forget`. So this commit also
        decides those branches. Raises XidError: NOTA, PROTO, a rollback code as in `tpc_prepare`, a heuristic one until
        `forget`.
        """
        xid = as_xid(xid)
        others = [as_xid(other) for other in confirm]
        if self._awaited(xid, BranchState.COMMITTING):
            return
        with self._ending_the_doomed(xid), self._lock:
            self._outcomes.require_none_heuristic(xid)
            branch = self._branches.require(xid)
            branch.require_willing()
            branch.require_left()
            if one_phase != (branch.state is BranchState.IDLE):
                raise refusal(XaCode.PROTO, xid, f"is {branch.state.value}: it cannot be committed so")
            if not branch.tx and not others:
                self._branches.end(branch)
                return
            tx = self._tx(branch)
            rows = [self._outcomes.made(other, COMMITTED, self._clock_ms(), virtual_shard=tx) for other in others]
            before = branch.state
            branch.become(BranchState.COMMITTING)
            branch.rows = rows
        self._carry_out(branch, before, lambda: self._transactions.commit(tx, then=[row.added() for row in rows]))

    def tpc_rollback(self, xid: AnyXid) -> None:
        """Roll a branch back. Raises XidError: NOTA, PROTO while sessions are at work, a heuristic code."""
        xid = as_xid(xid)
        self._awaited(xid, BranchState.PREPARING)
        if self._awaited(xid, BranchState.ROLLING_BACK):
            return
        with self._lock:
            self._outcomes.require_none_heuristic(xid)
            branch = self._branches.require(xid)
            doomed = branch.state is BranchState.DOOMED
            if not doomed:
                branch.require_left()
            if not branch.tx:
                self._branches.end(branch)
                return
            before = branch.state
            branch.become(BranchState.ROLLING_BACK)
        self._carry_out(branch, before, lambda: self._rolled_back(branch.tx, may_be_gone=doomed))

    def tpc_recover(self) -> list[Xid]:
        """Xids in doubt, until their settlement is durable, and xids with a heuristic outcome, as X/Open's xa_recover
        gives them."""
        with self._lock:
            heuristic = [kept.xid for kept in self._outcomes.all() if kept.decision in HEURISTIC]
            return list(dict.fromkeys(self._branches.recoverable() + heuristic))

    # ---- X/Open ----------------------------------------------------------------------------------------------------

    def tx(self, xid: AnyXid) -> int:
        """The store's transaction in which the sessions do the branch's work."""
        xid = as_xid(xid)
        with self._lock:
            branch = self._branches.require(xid)
            branch.require_willing()
            if branch.state is not BranchState.ACTIVE:
                raise refusal(XaCode.PROTO, xid, f"is {branch.state.value}: nothing can be done in it")
            return self._tx(branch)

    def join(self, xid: AnyXid, *, session: Hashable = None) -> None:
        """Let one more session work in the branch. Raises XidError: NOTA, PROTO, a rollback code."""
        xid = as_xid(xid)
        with self._lock:
            self._branches.require(xid).join(session)

    def end(self, xid: AnyXid, *, session: Hashable = None, failed: bool = False) -> None:
        """End the work of a session, suspended or not. If the work has `failed` the branch can only be rolled back.

        Raises XidError: NOTA; PROTO for a session without work in the branch; without `failed`, a rollback code if the
        branch is doomed; the work has ended in this case too.
        """
        xid = as_xid(xid)
        with self._lock:
            branch = self._branches.require(xid)
            branch.end(session)
            if not failed:
                branch.require_willing()
            elif branch.state is not BranchState.DOOMED:
                branch.doom(XaCode.RBROLLBACK)

    def suspend(self, xid: AnyXid, *, session: Hashable = None) -> None:
        """Suspend the work of a session until `resume`.

        Raises XidError: NOTA, PROTO; a rollback code if the branch is doomed, and then the session's work has ended.
        """
        xid = as_xid(xid)
        with self._lock:
            self._branches.require(xid).suspend(session)

    def resume(self, xid: AnyXid, *, session: Hashable = None) -> None:
        """Resume the suspended work of a session. Raises XidError: NOTA, PROTO, a rollback code."""
        xid = as_xid(xid)
        with self._lock:
            self._branches.require(xid).resume(session)

    def expire(self) -> list[Xid]:
        """Roll back the work of branches that have timed out or failed, so that they hold no locks. Returns their xids.

        Call it often, or have an `InDoubtWatch` do so: such a branch keeps its locks until then.
        """
        with self._lock:
            owing = [(branch, branch.debts) for branch in self._branches.owing()]
        done = []
        for branch, debts in owing:
            try:
                if branch.tx:
                    self._rolled_back(branch.tx, may_be_gone=True)
            except FullError as error:
                log.info("the rollback of xid %s waits for room: %s", text(branch.xid), error)
                continue
            with self._lock:
                branch.paid = max(branch.paid, debts)
            done.append(branch.xid)
            why = "timed out" if branch.doomed_as is XaCode.RBTIMEOUT else "failed"
            log.warning("xid %s has %s before its prepare: what it did is rolled back", text(branch.xid), why)
        return done

    def settle(self, xid: AnyXid, *, commit: bool) -> None:
        """Settle a branch in doubt in place of its coordinator. The outcome is kept until `forget`."""
        xid = as_xid(xid)
        decision = HEURISTIC_COMMIT if commit else HEURISTIC_ROLLBACK
        with self._lock:
            branch = self._branches.require(xid)
            kept = self._outcomes.get(xid)
            if branch.state is not BranchState.PREPARED or (kept is not None and kept.decision != decision):
                raise refusal(XaCode.PROTO, xid, f"is {branch.state.value}: only what is in doubt can be settled so")
            made = kept or self._outcomes.made(xid, decision, self._clock_ms(), virtual_shard=branch.tx)
            branch.become(BranchState.COMMITTING if commit else BranchState.ROLLING_BACK)
            branch.rows = [made]

        def call() -> Waitable:
            if commit:
                return self._transactions.commit(branch.tx, then=[made.added()])
            return self._decided_rollback(branch.tx, made, decided=kept is not None)

        self._carry_out(branch, BranchState.PREPARED, call)

    def settle_unnamed(self, tx: int, *, commit: bool) -> None:
        """Settle one of `unnamed`. No outcome is kept, because nobody can ask for it. Raises
        TransactionUnknownError."""
        try:
            pending = self._transactions.commit(tx) if commit else self._transactions.rollback(tx)
            pending.wait(self._wait_s)
        except TransactionUnknownError:
            self._forget_unnamed(tx)
            raise
        self._forget_unnamed(tx)

    def _forget_unnamed(self, tx: int) -> None:
        with self._lock:
            if tx in self.unnamed:
                self.unnamed.remove(tx)

    def forget(self, xid: AnyXid, *, wait: bool = True) -> None:
        """Forget the outcome of `xid`, because its coordinator was told. Raises XidError (NOTA) if none is kept."""
        xid = as_xid(xid)
        with self._lock:
            kept = self._outcomes.get(xid)
            if kept is None:
                raise refusal(XaCode.NOTA, xid, "has no outcome that is kept")
            if self._branches.look(xid) is not None:
                raise refusal(XaCode.PROTO, xid, "is not settled yet")
            self._outcomes.drop(kept)
        try:
            pending = self._records.delete(kept.record_id)
        except BaseException:
            with self._lock:
                self._outcomes.keep(kept)
            raise
        if wait:
            pending.wait(self._wait_s)

    # ---- state -------------------------------------------------------------------------------------------------------

    def state_of(self, xid: AnyXid) -> BranchState | None:
        """The state of a branch; None if there is no such branch, or not any more."""
        xid = as_xid(xid)
        with self._lock:
            branch = self._branches.look(xid)
            return None if branch is None else branch.state

    def not_durable(self, xid: AnyXid) -> NotDurable:
        """The parts of a prepared branch that a crash would lose. Empty for a branch that a load found, because they
        are lost already."""
        xid = as_xid(xid)
        with self._lock:
            branch = self._branches.look(xid)
            return NOTHING if branch is None else branch.not_durable

    def xid_of(self, tx: int) -> Xid | None:
        """The xid of the branch whose transaction this is, whatever its state; None if it belongs to no branch."""
        with self._lock:
            return next((branch.xid for branch in self._branches.all() if branch.tx == tx), None)

    def in_doubt(self) -> list[InDoubt]:
        """Prepared branches, the oldest first."""
        with self._lock:
            return self._branches.in_doubt()

    def outcome(self, xid: AnyXid) -> KeptOutcome | None:
        xid = as_xid(xid)
        with self._lock:
            return self._outcomes.get(xid)

    def outcomes(self) -> list[KeptOutcome]:
        """All outcomes that are kept."""
        with self._lock:
            return self._outcomes.all()

    def prove_active(self) -> None:
        """Returns if this node is the journal's active one at the call; otherwise raises the error that refuses its
        appends."""
        record_id = self._records.new_id()
        proof = [(ADD, record_id, OUTCOME, b"", False, 0), (DELETE, record_id, 0, b"", False, 0)]
        self._records.append_all(proof).wait(self._wait_s)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _carry_out(self, branch: Branch, before: BranchState, call: Callable[[], Waitable]) -> None:
        """Make the store's call for the branch's new state. If the store refuses, or the caller is interrupted while
        the journal makes room, the branch gets its old state again.

        A chain of stores may raise OutcomeUnknownError although its first store has made the change: then the new state
        stays.
        """
        try:
            pending = call()
        except OutcomeUnknownError:
            raise
        except BaseException as error:
            if is_refusal(error):
                with self._lock:
                    branch.become(before)
                    branch.rows = ()
            raise
        with self._lock:
            branch.pending = pending
        pending.wait(self._wait_s)
        with self._lock:
            self._branches.catch_up(branch)

    def _awaited(self, xid: Xid, state: BranchState) -> bool:
        """If the branch is in that state, wait for the earlier call that was accepted but not durable in time. True if
        the branch was in that state.

        Raises the error of the earlier call, DeadlineError, and a heuristic code if the branch was settled by hand.
        """
        with self._lock:
            pending = self._branches.under_way(xid, state)
        if pending is None:
            return False
        pending.wait(self._wait_s)
        with self._lock:
            self._branches.look(xid)
            self._outcomes.require_none_heuristic(xid)
        return True

    @contextmanager
    def _ending_the_doomed(self, xid: Xid) -> Iterator[None]:
        """A context that rolls back and ends the branch if a rollback code is raised, because X/Open lets no further
        call follow such a code."""
        try:
            yield
        except XidError as error:
            if error.code in ROLLBACKS:
                self.tpc_rollback(xid)
            raise

    def _prepared(self, branch: Branch, data: bytes) -> Waitable:
        pending = self._transactions.prepare(branch.tx, data)
        if isinstance(pending, SaysNotDurable):
            branch.not_durable = pending.not_durable
        return pending

    def _decided_rollback(self, tx: int, made: KeptOutcome, *, decided: bool) -> Waitable:
        """Append the outcome before the rollback, so that `start` can finish the rollback after a crash between the
        two."""
        if not decided:
            self._records.add(made.record_id, OUTCOME, made.encoded())
            with self._lock:
                self._outcomes.keep(made)
        return self._transactions.rollback(tx)

    def _rolled_back(self, tx: int, *, may_be_gone: bool) -> Waitable:
        """Roll back a transaction, including work that a session did after a time-out, which began the transaction
        again."""
        try:
            return self._transactions.rollback(tx)
        except TransactionUnknownError:
            if may_be_gone:
                return completed()
            raise

    def _did_nothing(self, branch: Branch) -> bool:
        """Whether a branch without sessions is read-only. If it is, its empty transaction is ended."""
        if not branch.tx:
            return True
        if not self._transactions.is_empty(branch.tx):
            return False
        self._transactions.rollback(branch.tx)
        return True

    def _tx(self, branch: Branch) -> int:
        if not branch.tx:
            branch.tx = self._transactions.begin()
        return branch.tx
