"""The branches of a resource by xid, from `tpc_begin` or a load until they are settled."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from journal.errors import FullError
from journal.words import counted
from journal.xa.branch import Branch, BranchState
from journal.xa.codes import XaCode
from journal.xa.outcomes import Outcomes
from journal.xa.ports import ClockMs, LoadedRows, Waitable
from journal.xa.xid import Xid, decode_xid, prepared_ms, refusal


class InDoubt(NamedTuple):
    """A prepared branch."""

    xid: Xid
    tx: int
    since_ms: float
    """When the branch was prepared; when it was loaded if the prepare does not say."""


class Branches:
    """The branches of a resource, by xid. Not thread-safe: the lock of the resource guards it.

    Each look-up of a branch first brings the branch up to date. If its prepare, commit or rollback has become durable,
    the branch moves on, even if the caller that waited for this has given up. If its time is over, it becomes doomed.
    """

    def __init__(
        self, outcomes: Outcomes, loaded: LoadedRows, clock_ms: ClockMs, elapsed_ms: ClockMs, branches_max: int
    ) -> None:
        self._outcomes = outcomes
        self._elapsed_ms = elapsed_ms
        self._branches_max = branches_max
        self._by_xid: dict[Xid, Branch] = {}
        self.unnamed: list[int] = []
        for row in loaded.prepared:
            xid = decode_xid(row.data)
            if xid is None or xid in self._by_xid:
                self.unnamed.append(row.tx)
            else:
                since_ms = prepared_ms(row.data) or clock_ms()
                self._by_xid[xid] = Branch(xid, BranchState.PREPARED, row.tx, since_ms=since_ms, prepared=True)

    def begin(self, xid: Xid, session: Hashable, timeout_ms: float) -> None:
        """Add a branch, in which `session` works. Raises XidError (DUPID) for an xid in use, FullError over the bound.

        At the bound, doomed branches that hold nothing any more are forgotten, because perhaps nobody will ever ask for
        them.
        """
        if self.look(xid) is not None or self._outcomes.get(xid) is not None:
            raise refusal(XaCode.DUPID, xid, "is in use")
        if len(self._by_xid) >= self._branches_max and not self._make_room():
            raise FullError(
                f"{counted(len(self._by_xid), 'unsettled branch', 'unsettled branches')}: settle some (branches_max)"
            )
        self._by_xid[xid] = Branch(xid, working={session}, deadline_ms=self._elapsed_ms() + timeout_ms)

    def _make_room(self) -> bool:
        for branch in self.all():
            if branch.state is BranchState.DOOMED and not (branch.owes_rollback or branch.working):
                self.end(branch)
        return len(self._by_xid) < self._branches_max

    def look(self, xid: Xid) -> Branch | None:
        branch = self._by_xid.get(xid)
        if branch is not None:
            self.catch_up(branch)
        return self._by_xid.get(xid)

    def require(self, xid: Xid) -> Branch:
        """The branch of this xid. Raises XidError (NOTA) if there is none."""
        branch = self.look(xid)
        if branch is None:
            raise refusal(XaCode.NOTA, xid, "is not known")
        return branch

    def all(self) -> list[Branch]:
        for branch in list(self._by_xid.values()):
            self.catch_up(branch)
        return list(self._by_xid.values())

    def in_doubt(self) -> list[InDoubt]:
        """Prepared branches, the oldest first."""
        prepared = [branch for branch in self.all() if branch.state is BranchState.PREPARED]
        found = [InDoubt(branch.xid, branch.tx, branch.since_ms) for branch in prepared]
        return sorted(found, key=lambda line: (line.since_ms, line.tx))

    def recoverable(self) -> list[Xid]:
        """Branches that a load would find in doubt, also those whose commit or rollback is not durable yet."""
        return [branch.xid for branch in self.all() if branch.prepared]

    def owing(self) -> list[Branch]:
        """Branches that are doomed and still hold locks or messages."""
        return [branch for branch in self.all() if branch.state is BranchState.DOOMED and branch.owes_rollback]

    def under_way(self, xid: Xid, state: BranchState) -> Waitable | None:
        """The completion of a branch's prepare or settlement while it may not be durable yet; else None."""
        branch = self.look(xid)
        return branch.pending if branch is not None and branch.state is state else None

    def catch_up(self, branch: Branch) -> None:
        """Bring the state of a branch up to date with what has become durable, and with a time-out that has passed."""
        if branch.expires(self._elapsed_ms()):
            branch.doom(XaCode.RBTIMEOUT)
        pending = branch.pending
        if pending is None or not pending.done or pending.error is not None:
            return
        branch.pending = None
        if branch.state is BranchState.PREPARING:
            branch.become(BranchState.PREPARED)
            branch.prepared = True
            return
        for row in branch.rows:
            self._outcomes.keep(row)
        self.end(branch)

    def end(self, branch: Branch) -> None:
        """Forget a branch that is settled."""
        branch.become(BranchState.ENDED)
        del self._by_xid[branch.xid]
