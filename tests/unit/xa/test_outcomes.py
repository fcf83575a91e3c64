"""OUTCOME records: their bytes, and what is none."""

from __future__ import annotations

import pytest

from journal.errors import RowError
from journal.v1.journal_pb2 import ADD
from journal.v1.store_pb2 import OUTCOME, Outcome, Xid
from journal.xa.loading import OutcomeFound, XaRows
from journal.xa.outcomes import COMMITTED, Outcomes, decode_outcome
from journal.xa.xid import make_xid
from tests.support.xa import START_MS, MemoryJournal, MemoryLog

XID = make_xid(1, "g", "b")


def outcomes(*found: OutcomeFound) -> Outcomes:
    return Outcomes(MemoryJournal(MemoryLog()), XaRows(outcomes=list(found)))


def test_an_outcome_survives_its_record() -> None:
    made = outcomes().made(XID, COMMITTED, START_MS)
    type_, record_id, kind, data, replaceable, subject = made.added()
    assert (type_, record_id, kind, replaceable, subject) == (ADD, made.record_id, OUTCOME, False, 0)
    assert decode_outcome(record_id, data) == made
    assert outcomes(OutcomeFound(record_id, data)).get(XID) == made


def test_what_is_made_is_not_kept_before_it_is_in_the_journal() -> None:
    kept = outcomes()
    made = kept.made(XID, COMMITTED, START_MS)
    assert kept.get(XID) is None
    kept.keep(made)
    assert kept.all() == [made]
    kept.drop(made)
    assert kept.all() == []


@pytest.mark.parametrize(
    "message",
    [
        Outcome(),
        Outcome(decision=Outcome.COMMITTED),
        Outcome(xid=Xid(format_id=1, gtrid=b"g"), decision=Outcome.DECISION_UNSPECIFIED),
        Outcome(xid=Xid(format_id=1, gtrid=bytes(65)), decision=Outcome.COMMITTED),
    ],
)
def test_a_record_that_is_no_outcome_stops_the_load(message: Outcome) -> None:
    with pytest.raises(RowError):
        decode_outcome(1, message.SerializeToString())


def test_bytes_that_are_no_message_stop_the_load() -> None:
    with pytest.raises(RowError):
        decode_outcome(1, b"\xff")
