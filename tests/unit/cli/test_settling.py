"""Settling by hand beside a resource that may be settling the same transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.cli.operations.acting import JournalActing, settle_with
from journal.errors import XidError
from journal.local.journal import LocalJournal
from journal.v1.store_pb2 import OUTCOME
from journal.xa.loading import XaLoader
from journal.xa.outcomes import HEURISTIC_ROLLBACK
from journal.xa.resource import XaResource
from journal.xa.xid import encode_xid, make_xid
from tests.support.xa import MESSAGE_KIND, START_MS, MemoryJournal, MemoryLog, opened

XID = make_xid(1, "global", "branch")


def prepare_unnamed(journal: MemoryJournal) -> int:
    tx = journal.begin()
    journal.add(journal.new_id(), MESSAGE_KIND, b"unnamed", tx=tx)
    journal.prepare(tx, b"somebody's own").wait()
    return tx


def prepare_branch(journal: MemoryJournal, resource: XaResource) -> int:
    resource.tpc_begin(XID)
    tx = resource.tx(XID)
    journal.add(journal.new_id(), MESSAGE_KIND, b"branch", tx=tx)
    resource.end(XID)
    resource.tpc_prepare(XID)
    return tx


def test_a_branch_that_is_being_rolled_back_is_not_committed_past_its_resource() -> None:
    log = MemoryLog()
    journal, resource = opened(log)
    tx = prepare_branch(journal, resource)
    refused = []

    def commit_meanwhile() -> None:
        with pytest.raises(XidError, match="is rolling back"):
            settle_with(resource, journal, tx, commit=True)
        refused.append(tx)

    journal.steps.at(1, commit_meanwhile)
    resource.settle(XID, commit=False)
    assert refused == [tx]
    assert not log.messages()
    outcome = resource.outcome(XID)
    assert outcome is not None
    assert outcome.decision == HEURISTIC_ROLLBACK


@pytest.mark.parametrize("commit", [True, False])
def test_what_has_no_xid_is_settled_in_the_resource_that_knows_it(commit: bool) -> None:
    log = MemoryLog()
    tx = prepare_unnamed(MemoryJournal(log))
    journal = MemoryJournal(log)
    resource = XaResource(journal, journal, log.loaded(), clock_ms=lambda: START_MS)
    assert resource.unnamed == [tx]
    settle_with(resource, journal, tx, commit=commit)
    assert resource.unnamed == []
    assert log.messages() == ({b"unnamed"} if commit else set())


@pytest.mark.parametrize("commit", [True, False])
def test_any_brokers_transaction_is_settled_whatever_kinds_its_records_have(tmp_path: Path, commit: bool) -> None:
    with LocalJournal(tmp_path) as journal:
        journal.activate()
        journal.add(journal.new_id(), OUTCOME, b"somebody's own kind")
        tx = journal.begin()
        journal.add(journal.new_id(), OUTCOME, b"in doubt", tx=tx)
        journal.prepare(tx, encode_xid(XID)).wait()
    loader = XaLoader()
    with LocalJournal(tmp_path) as journal:
        journal.activate(loader)
        assert JournalActing(journal, loader.loaded, "orders").settle(tx, commit=commit, operator="me") == 2
    with LocalJournal(tmp_path) as journal:
        assert not journal.activate(loader).in_doubt
    assert len(loader.loaded.outcomes) == 2 + commit


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_beside_the_resource_is_settled_in_the_store(commit: bool) -> None:
    log = MemoryLog()
    journal, resource = opened(log)
    settle_with(resource, journal, prepare_unnamed(journal), commit=commit)
    assert not log.prepared
    assert log.messages() == ({b"unnamed"} if commit else set())
