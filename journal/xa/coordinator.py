"""`Coordinator`: distributed transactions of a store and other resources, with the journal as their decision log.

    coordinator = Coordinator(resource, "orders", [postgres])      # once the journal is active
    coordinator.recover()
    with transaction.manager:
        work = coordinator.join(transaction.manager)
        store.send(message, ["queue"], tx=work.tx)
        coordinator.enlist(work, postgres).execute("INSERT ...")

Which coordinators are gone is no guess: only the journal's active node can decide, so whatever an earlier activation
began and did not decide, nobody will. `recover` settles it, and is safe to call at any time, by any node.
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
    """Outcomes that are confirmed, or that no participant must hear of any more."""
    unreachable: list[str] = field(default_factory=list)
    """Participants that could not be asked, or could not be told about all their branches: call again later."""


class Coordinator:
    """Coordinates distributed transactions. Thread-safe; each transaction that it begins is used by one thread."""

    def __init__(self, resource: XaResource, name: str, participants: Sequence[Participant], *, instance: str) -> None:
        """`name` (a-z, 0-9, hyphen; at most 32) is this journal's among those that share a participant, and for ever.

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

        Unless it votes within `timeout_ms` it can only abort; what it holds is given back by an abort or by
        `XaResource.expire`, which an `InDoubtWatch` calls.
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
        """Settle what earlier coordinators of this journal left, and what was decided and not confirmed.

        What became of store branches that were settled by hand or by policy is forgotten once no participant has a
        branch that would have to hear of it: one that is left out here must have none in doubt.
        Raises the journal's errors (FencedError: another node is active, and will recover).
        """
        done = Recovery()
        with self._recovering:
            for line in self._resource.in_doubt():
                # the resource finishes a rollback that was decided by hand
                left = self._is_left(line.xid) and self._resource.outcome(line.xid) is None
                if left and line.xid.bqual == STORE:
                    self._roll_back(line.xid, done)
            # read before any participant lists its branches, as the owed outcomes are
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
        """Roll back a branch of the store that nobody will decide, unless it was settled just now."""
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
        # read before the branches are listed: an outcome without a branch has then been confirmed
        owed = [kept for kept in self._resource.outcomes() if self._is_owed(kept, participant)]
        with _asking(participant):
            connection = participant.connect()
        try:
            with _asking(participant):
                found = self._branches_of(participant, connection)
            if any(self._fate(xid) is None for xid in found if self._is_left(xid)):
                # only the active node knows that what has no outcome will get none; and it was one after the listing
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
        """Tell a branch; whether it knows now. Somebody else (its own transaction, another recovery) may have told it
        meanwhile. Raises what is no answer about this branch: the next one would meet it, too.
        """
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
        """Branches in doubt of a participant that a coordinator made: the xid, and what the connection calls it."""
        found = {}
        for own in connection.tpc_recover():
            if own[0] != FORMAT_ID:
                continue
            try:
                xid = make_xid(own[0], own[1], own[2])
            except XidError:
                continue  # no coordinator made it
            if xid.bqual == participant.name.encode():
                found[xid] = own
        return found

    def _is_left(self, xid: Xid) -> bool:
        """Whether an xid is of a transaction of this journal that is not at work."""
        with self._lock:
            at_work = xid.gtrid in self._at_work
        return xid.format_id == FORMAT_ID and xid.gtrid.startswith(self._prefix) and not at_work

    def _is_owed(self, kept: KeptOutcome, participant: Participant) -> bool:
        return kept.decision == COMMITTED and kept.xid.bqual == participant.name.encode() and self._is_left(kept.xid)

    def _is_stores_own(self, kept: KeptOutcome) -> bool:
        """Whether the store's branch of an xid was settled without its coordinator, and the transaction is over."""
        settled = kept.decision in HEURISTIC and kept.xid.bqual == STORE and self._is_left(kept.xid)
        return settled and self._resource.state_of(kept.xid) is None

    def _fate(self, xid: Xid) -> Outcome.Decision.ValueType | None:
        """The outcome for a branch: its own, or that of the store's branch if that was settled by hand."""
        for of in (xid, _stores(xid)):
            kept = self._resource.outcome(of)
            if kept is not None:
                return kept.decision
        return None


class _ParticipantError(Exception):
    """An error of a participant, kept apart from the journal's own errors, which may have the same type."""


@contextmanager
def _asking(participant: Participant) -> Iterator[None]:
    """A context for calls of a participant alone. Raises _ParticipantError."""
    try:
        yield
    except participant.errors as error:
        raise _ParticipantError(str(error)) from error


def _tell(connection: TwoPhaseConnection, own: Any, *, commit: bool) -> None:
    """Settle a branch. If it was settled by hand as was decided, the participant need not remember that any more."""
    try:
        (connection.tpc_commit if commit else connection.tpc_rollback)(own)
    except XidError as error:
        agreed = error.code == (XaCode.HEURCOM if commit else XaCode.HEURRB)
        if not (agreed and isinstance(connection, RemembersHeuristic)):
            raise
        connection.forget(own)


def _concerns_all(error: Exception) -> bool:
    """Whether an error says that a store is slow, full or gone, and not that it refused the branch.

    The errors of databases are not known here.
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
