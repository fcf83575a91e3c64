"""OUTCOME records: decisions that a participant or coordinator still has to be told, kept in the journal until
`forget`.

There are two kinds. The decision log of a distributed transaction has one COMMITTED record for every other branch,
under that branch's xid. The group that commits also adds these records; each is deleted when its branch has confirmed.
(A single record for all branches would have to note which have confirmed.) A heuristic outcome is that of a branch that
was settled by hand or by policy. It is kept under the branch's own xid until the coordinator was told.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.append.operations import PlainOperation
from journal.errors import RowError, XidError
from journal.limits import VIRTUAL_SHARDS
from journal.v1.journal_pb2 import ADD
from journal.v1.store_pb2 import OUTCOME, Outcome
from journal.xa.codes import XaCode
from journal.xa.ports import LoadedRows, OutcomeRecords
from journal.xa.xid import Xid, message_of, refusal, xid_of

COMMITTED = Outcome.COMMITTED
HEURISTIC_COMMIT = Outcome.HEURISTIC_COMMIT
HEURISTIC_ROLLBACK = Outcome.HEURISTIC_ROLLBACK
HEURISTIC = frozenset({HEURISTIC_COMMIT, HEURISTIC_ROLLBACK})


class KeptOutcome(NamedTuple):
    """A decision and the record that keeps it."""

    record_id: int
    xid: Xid
    decision: Outcome.Decision.ValueType
    timestamp: int

    def encoded(self) -> bytes:
        message = Outcome(xid=message_of(self.xid), decision=self.decision, timestamp=self.timestamp)
        return message.SerializeToString()

    def added(self) -> PlainOperation:
        """The operation that adds the record."""
        return ADD, self.record_id, OUTCOME, self.encoded(), False, 0


def decode_outcome(record_id: int, data: bytes) -> KeptOutcome:
    """Decode a record. Raises RowError for one that is not an outcome."""
    try:
        message = Outcome.FromString(data)
        xid = xid_of(message.xid)
    except (DecodeError, XidError) as error:
        raise RowError(f"record {record_id} is not an outcome: {error}") from error
    if message.decision == Outcome.DECISION_UNSPECIFIED:
        raise RowError(f"record {record_id} is an outcome without a decision")
    return KeptOutcome(record_id, xid, message.decision, message.timestamp)


class Outcomes:
    """The outcomes that are kept, by xid. The lock of the resource guards it."""

    def __init__(self, records: OutcomeRecords, loaded: LoadedRows) -> None:
        self._records = records
        self._kept: dict[Xid, KeptOutcome] = {}
        for row in loaded.outcomes:
            self.keep(decode_outcome(row.record_id, row.data))

    def get(self, xid: Xid) -> KeptOutcome | None:
        return self._kept.get(xid)

    def require_none_heuristic(self, xid: Xid) -> None:
        """Raises XidError (HEURCOM, HEURRB) if an outcome is kept for the xid."""
        kept = self._kept.get(xid)
        if kept is not None and kept.decision in HEURISTIC:
            committed = kept.decision == HEURISTIC_COMMIT
            code = XaCode.HEURCOM if committed else XaCode.HEURRB
            raise refusal(code, xid, f"was {'committed' if committed else 'rolled back'} without its coordinator")

    def all(self) -> list[KeptOutcome]:
        return list(self._kept.values())

    def made(
        self, xid: Xid, decision: Outcome.Decision.ValueType, now_ms: float, *, virtual_shard: int = 0
    ) -> KeptOutcome:
        """A new outcome with an id for its record, which is not kept yet."""
        record_id = self._records.new_id(virtual_shard % VIRTUAL_SHARDS)
        return KeptOutcome(record_id, xid, decision, int(now_ms))

    def keep(self, outcome: KeptOutcome) -> None:
        """Note that the record of an outcome is in the journal."""
        self._kept[outcome.xid] = outcome

    def drop(self, outcome: KeptOutcome) -> None:
        """Note that the record of an outcome is being deleted."""
        self._kept.pop(outcome.xid, None)
