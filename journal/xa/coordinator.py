"""`Coordinator`: distributed transactions of a store and other resources, with the journal as their decision log.

    coordinator = Coordinator(resource, "orders", [postgres])      # once the journal is active
    coordinator.recover()
    with transaction.manager:
        work = coordinator.join(transaction.manager)
        store.send(message, ["queue"], tx=work.tx)
        coordinator.enlist(work, postgres).execute("INSERT ...")

Only the journal's active node can decide a transaction. So a transaction that an earlier activation began and did not
decide will never be decided, and can be rolled back without a guess. `recover` does that, and is safe to call at any
time, on any node.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from journal.append.callbacks import CallersLock
from journal.errors import CallerError, ConfigError, JournalError, StateError, XidError
from journal.v1.store_pb2 import Outcome
from journal.xa.codes import XaCode
from journal.xa.data_manager import StoreDataManager
from journal.xa.outcomes import COMMITTED, HEURISTIC, HEURISTIC_COMMIT, KeptOutcome
from journal.xa.ports import Participant, RemembersHeuristic, TwoPhaseConnection
from journal.xa.resource import XaResource
from journal.xa.xid import Xid, make_xid, text

log = logging.getLogger(__name__)

FORMAT_ID = 0x6B6A3031
"""The format id of the xids that are made here: "kj01"."""

_NAME = re.compile(r"[a-z0-9-]{1,32}")
_INSTANCE = re.compile(r"[0-9a-f]{16}")
STORE = b"store"
"""The bqual of the store's branches."""


@dataclass(slots=True)
class Recovery:
    """The result of a recovery."""

    committed: list[Xid] = field(default_factory=list)
    rolled_back: list[Xid] = field(default_factory=list)
    forgotten: list[Xid] = field(default_factory=list)
    """Outcomes that were forgotten, because they are confirmed or no participant needs them any more."""
    unreachable: list[str] = field(default_factory=list)
    """Participants that did not answer, or could not be told about all their branches: call `recover` again later."""


class Coordinator:
    """Coordinates distributed transactions. Thread-safe; each transaction that it begins is used by one thread."""

    def __init__(self, resource: XaResource, name: str, participants: Sequence[Participant], *, instance: str) -> None:
        """`name` (a-z, 0-9, hyphen; at most 32) distinguishes this journal from others that share a participant, and
        must never change.

        `instance`, 16 random hexadecimal digits, is new for every activation, so that no xid is ever used twice.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"coordinator {name!r}: must be 1 to 32 of a-z, 0-9 and hyphen")
        if not _INSTANCE.fullmatch(instance):
            raise ConfigError(f"instance {instance!r}: must be 16 hexadecimal digits")
        names = [participant.name for participant in participants]
        if len(set(names)) != len(names) or STORE.decode() in names:
            raise ConfigError(f"participants {names}: each needs a name of its own, other than {STORE.decode()!r}")
        for participant_name in names:
            make_xid(FORMAT_ID, name, participant_name)
        self._resource = resource
        self._prefix = f"{name}.".encode()
        self._instance = instance.encode()
        self._participants = list(participants)
        self._numbers = count(1)
        self._lock = CallersLock()
        self._recovering = CallersLock()
        self._at_work: set[bytes] = set()

    # ---- transactions ----------------------------------------------------------------------------------------------

    def join(self, manager: Any, *, timeout_ms: float = math.inf) -> StoreDataManager:
        """Have the store take part in the current transaction of a manager of the `transaction` package.

        If the vote does not come within `timeout_ms`, the transaction can only abort. Its locks are released by an
        abort, or by `XaResource.expire`, which an `InDoubtWatch` calls.
        """
        gtrid = b"%s%s.%x" % (self._prefix, self._instance, next(self._numbers))
        xid = make_xid(FORMAT_ID, gtrid, STORE)
        self._resource.tpc_begin(xid, timeout_ms=timeout_ms)
        try:
            work = StoreDataManager(self._resource, xid, manager, self._ended)
        except BaseException:
            self._resource.end(xid, failed=True)
            self._resource.tpc_rollback(xid)
            raise
        with self._lock:
            self._at_work.add(gtrid)
        try:
            manager.get().join(work)
        except BaseException:
            work.abort(manager)
            raise
        return work

    def enlist(self, work: StoreDataManager, participant: Participant) -> TwoPhaseConnection:
        """A connection whose work commits with the store's, or not at all. Do not settle or close it yourself."""
        xid = make_xid(FORMAT_ID, work.xid.gtrid, participant.name)
        connection = participant.connect()
        try:
            connection.tpc_begin(connection.xid(xid.format_id, xid.gtrid.decode(), xid.bqual.decode()))
            branch = work.enlist(participant, connection, xid)
        except BaseException:
            connection.close()
            raise
        work.transaction_manager.get().join(branch)
        return connection

    def _ended(self, xid: Xid) -> None:
        with self._lock:
            self._at_work.discard(xid.gtrid)

    # ---- recovery --------------------------------------------------------------------------------------------------

    def recover(self) -> Recovery:
        """Settle the branches that earlier coordinators of this journal left, and those that were decided but not
        confirmed.

        An outcome of a store branch that was settled by hand or by policy is forgotten when no participant has a branch
        that needs it. So a participant that is left out here must have no branch in doubt. Raises the journal's errors
        (FencedError if another node is active; that node will recover).
        """
        done = Recovery()
        with self._recovering:
            for line in self._resource.in_doubt():
                # the resource finishes a rollback that was decided by hand
                left = self._is_left(line.xid) and self._resource.outcome(line.xid) is None
                if left and line.xid.bqual == STORE:
                    self._roll_back(line.xid, done)
            # these and the owed outcomes are read before any participant lists its branches
            by_hand = [kept for kept in self._resource.outcomes() if self._is_stores_own(kept)]
            untold: set[bytes] = set()
            all_asked = True
            for participant in self._participants:
                try:
                    here = self._recover_participant(participant, done)
                except _ParticipantError as error:
                    log.warning("participant %s cannot be asked or told now: %s", participant.name, error)
                    done.unreachable.append(participant.name)
                    all_asked = False
                    continue
                untold.update(xid.gtrid for xid in here)
                if here:
                    done.unreachable.append(participant.name)
            if all_asked:
                self._forget([kept for kept in by_hand if kept.xid.gtrid not in untold], done)
        return done

    def _roll_back(self, xid: Xid, done: Recovery) -> None:
        """Roll back a branch of the store that nobody will decide. It may have been settled a moment ago."""
        try:
            self._resource.tpc_rollback(xid)
        except XidError as error:
            log.info("the store's branch was settled meanwhile: %s", error)
        else:
            done.rolled_back.append(xid)

    def _recover_participant(self, participant: Participant, done: Recovery) -> set[Xid]:
        """Settle a participant's branches. Returns those that cannot be told now.

        Raises _ParticipantError if the participant cannot be asked or told any more.
        """
        # the outcomes are read before the branches are listed, so an outcome without a branch has been confirmed
        owed = [kept for kept in self._resource.outcomes() if self._is_owed(kept, participant)]
        with _asking(participant):
            connection = participant.connect()
        try:
            with _asking(participant):
                found = self._branches_of(participant, connection)
            if any(self._fate(xid) is None for xid in found if self._is_left(xid)):
                # Only the active node knows that a branch without an outcome will get none. This call proves that the
                # node was active when it listed the branches.
                self._resource.prove_active()
            untold = set()
            for xid, own in found.items():
                if not self._is_left(xid) or self._resource.state_of(_stores(xid)) is not None:
                    continue
                commit = self._fate(xid) in (COMMITTED, HEURISTIC_COMMIT)
                with _asking(participant):
                    told = self._settle(participant, connection, own, xid, done, commit=commit)
                if not told:
                    untold.add(xid)
        finally:
            _close(participant, connection)
        self._forget([kept for kept in owed if kept.xid not in untold], done)
        return untold

    def _forget(self, outcomes: Sequence[KeptOutcome], done: Recovery) -> None:
        for kept in outcomes:
            try:
                self._resource.forget(kept.xid)
            except XidError as error:
                log.info("an outcome was forgotten meanwhile: %s", error)
            else:
                done.forgotten.append(kept.xid)

    def _settle(
        self,
        participant: Participant,
        connection: TwoPhaseConnection,
        own: Any,
        xid: Xid,
        done: Recovery,
        *,
        commit: bool,
    ) -> bool:
        """Settle a participant's branch; returns whether it is settled now. Another thread (its own transaction,
        another recovery) may have done so meanwhile. Raises errors that do not concern this branch alone, because the
        next branch would meet them too."""
        try:
            _tell(connection, own, commit=commit)
        except participant.errors as error:
            if xid not in self._branches_of(participant, connection):
                return True
            if _concerns_all(error):
                raise
            log.warning("participant %s does not settle xid %s: %s", participant.name, text(xid), error)
            return False
        (done.committed if commit else done.rolled_back).append(xid)
        return True

    def _branches_of(self, participant: Participant, connection: TwoPhaseConnection) -> dict[Xid, Any]:
        """The branches in doubt of a participant that a coordinator made: each xid, and the connection's own form of
        it."""
        found = {}
        for own in connection.tpc_recover():
            if own[0] != FORMAT_ID:
                continue
            try:
                xid = make_xid(own[0], own[1], own[2])
            except XidError:
                continue  # a coordinator makes no such xid
            if xid.bqual == participant.name.encode():
                found[xid] = own
        return found

    def _is_left(self, xid: Xid) -> bool:
        """Whether an xid belongs to a transaction of this journal that no thread is working on."""
        with self._lock:
            at_work = xid.gtrid in self._at_work
        return xid.format_id == FORMAT_ID and xid.gtrid.startswith(self._prefix) and not at_work

    def _is_owed(self, kept: KeptOutcome, participant: Participant) -> bool:
        return kept.decision == COMMITTED and kept.xid.bqual == participant.name.encode() and self._is_left(kept.xid)

    def _is_stores_own(self, kept: KeptOutcome) -> bool:
        """Whether an outcome is of a store branch that was settled without its coordinator, and the transaction is
        over."""
        settled = kept.decision in HEURISTIC and kept.xid.bqual == STORE and self._is_left(kept.xid)
        return settled and self._resource.state_of(kept.xid) is None

    def _fate(self, xid: Xid) -> Outcome.Decision.ValueType | None:
        """The outcome for a branch: its own, or the one of the store's branch if that was settled by hand; None if
        there is none."""
        for of in (xid, _stores(xid)):
            kept = self._resource.outcome(of)
            if kept is not None:
                return kept.decision
        return None


class _ParticipantError(Exception):
    """An error of a participant. It is kept apart from the journal's own errors, which may have the same type."""


@contextmanager
def _asking(participant: Participant) -> Iterator[None]:
    """A context for calls that only concern a participant. Raises _ParticipantError."""
    try:
        yield
    except participant.errors as error:
        raise _ParticipantError(str(error)) from error


def _tell(connection: TwoPhaseConnection, own: Any, *, commit: bool) -> None:
    """Settle a branch. If it was settled by hand with the same outcome, the participant may forget that."""
    try:
        (connection.tpc_commit if commit else connection.tpc_rollback)(own)
    except XidError as error:
        agreed = error.code == (XaCode.HEURCOM if commit else XaCode.HEURRB)
        if not (agreed and isinstance(connection, RemembersHeuristic)):
            raise
        connection.forget(own)


def _concerns_all(error: Exception) -> bool:
    """Whether an error says that a store is slow, full or gone, and not that it refused the branch.

    For the errors of databases it is False, because they are not known here.
    """
    return isinstance(error, JournalError) and (isinstance(error, StateError) or not isinstance(error, CallerError))


def _close(participant: Participant, connection: TwoPhaseConnection) -> None:
    try:
        connection.close()
    except participant.errors as error:
        log.warning("the connection to participant %s could not be closed: %s", participant.name, error)


def _stores(xid: Xid) -> Xid:
    """The xid of the store's branch of the same transaction."""
    return xid._replace(bqual=STORE)
