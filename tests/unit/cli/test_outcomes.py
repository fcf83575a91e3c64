"""Kept outcomes: found in a state, shown, and forgotten by hand if nobody needs them."""

from __future__ import annotations

import pytest

from journal.cli.operations.outcomes import forget, kept_outcomes, outcome_line, outcomes_among
from journal.errors import XidError
from journal.fold.engine import Fold
from journal.process.progress import no_progress
from journal.v1.journal_pb2 import Mark
from journal.v1.store_pb2 import OUTCOME, Outcome
from journal.xa.codes import XaCode
from journal.xa.coordinator import FORMAT_ID, STORE
from journal.xa.loading import OutcomeFound
from journal.xa.outcomes import COMMITTED, HEURISTIC_COMMIT, HEURISTIC_ROLLBACK, KeptOutcome
from journal.xa.resource import XaResource
from journal.xa.xid import Xid, make_xid, text
from tests.support.build import START_MS, DictBase, add, marker, update, wal
from tests.support.xa import MemoryJournal, MemoryLog, opened

XID = make_xid(1, "global", b"\x01here")
TEXT = "1:global:\\x01here"


def keeping(*xids: Xid, decision: Outcome.Decision.ValueType = HEURISTIC_COMMIT) -> tuple[MemoryLog, XaResource]:
    log = MemoryLog()
    journal = MemoryJournal(log)
    journal.append_all([KeptOutcome(log.new_id(), xid, decision, 0).added() for xid in xids]).wait()
    return log, opened(log)[1]


def test_outcomes_are_found_among_other_records() -> None:
    kept = KeptOutcome(2048, XID, HEURISTIC_ROLLBACK, START_MS)
    operations = [
        add(1024, b"a message", kind=4),
        add(2048, kept.encoded(), kind=OUTCOME),
        update(2048, kind=OUTCOME),
        add(3072, b"somebody's own kind", kind=OUTCOME),
    ]
    base = DictBase()
    fold = Fold(Mark(offset=-1), base, updates_row_bytes_max=4096)
    for offset, timestamp, each in wal([marker()], operations):
        fold.apply(offset, timestamp, each)
    base.write(fold.changes())
    (found,) = kept_outcomes(base, no_progress)
    assert found == kept
    assert outcome_line(found, START_MS + 2500.0) == {
        "xid": {"format_id": 1, "gtrid": "Z2xvYmFs", "bqual": "AWhlcmU="},
        "text": TEXT,
        "decision": "heuristic rollback",
        "age_seconds": 2.5,
        "record": 2048,
    }


def test_outcomes_of_a_load_are_told_from_another_brokers_records_of_their_kind() -> None:
    kept = KeptOutcome(2048, XID, HEURISTIC_ROLLBACK, START_MS)
    outcome = OutcomeFound(2048, kept.encoded())
    assert outcomes_among([OutcomeFound(1024, b"somebody's own kind"), outcome]) == [outcome]


@pytest.mark.parametrize("decision", [HEURISTIC_COMMIT, HEURISTIC_ROLLBACK])
def test_what_became_of_a_transaction_settled_by_hand_is_forgotten(decision: Outcome.Decision.ValueType) -> None:
    log, resource = keeping(XID, decision=decision)
    forget(resource, TEXT, "orders")
    assert not log.records
    assert not resource.outcomes()


def test_a_decision_that_recovery_needs_is_not_forgotten() -> None:
    log, resource = keeping(XID, decision=COMMITTED)
    with pytest.raises(XidError, match="a recovery rolls it back") as raised:
        forget(resource, TEXT, "orders")
    assert raised.value.code == XaCode.PROTO
    assert log.records


def test_a_stores_branch_that_others_have_to_follow_is_not_forgotten() -> None:
    xid = make_xid(FORMAT_ID, "test.0.1", STORE)
    log, resource = keeping(xid)
    with pytest.raises(XidError, match="have still to commit"):
        forget(resource, text(xid), "orders")
    assert log.records
    log, resource = keeping(xid, decision=HEURISTIC_ROLLBACK)
    forget(resource, text(xid), "orders")
    assert not log.records


def test_what_is_not_kept_is_said_with_where_to_look() -> None:
    with pytest.raises(XidError, match="tx list -j orders") as raised:
        forget(keeping()[1], TEXT, "orders")
    assert raised.value.code == XaCode.NOTA


def test_xids_that_read_alike_are_not_mistaken_for_each_other() -> None:
    log, resource = keeping(make_xid(1, "a:b", "c"), make_xid(1, "a", "b:c"))
    with pytest.raises(XidError, match="several xids are called 1:a:b:c"):
        forget(resource, "1:a:b:c", "orders")
    assert len(log.records) == 2
