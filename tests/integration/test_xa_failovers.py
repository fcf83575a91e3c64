"""A thousand transactions in doubt, carried through twenty failovers and then settled as their coordinator says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from journal.errors import LockedError
from journal.local_journal import LocalJournal
from journal.runtime import wall_ms
from journal.v1.store_pb2 import MESSAGE
from journal.xa.loading import XaLoader
from journal.xa.resource import Vote, XaResource
from journal.xa.xid import Xid, make_xid
from tests.support.in_process import Collected

BRANCHES = 1000
FAILOVERS = 20
THREADS = 32
SHARED = 7
"""A record that was there before; the first branch deletes it."""

XIDS = [make_xid(1, f"global-{number:04}", "branch") for number in range(BRANCHES)]


@contextmanager
def active(directory: Path) -> Iterator[tuple[LocalJournal, XaResource, Collected]]:
    loaded = Collected()
    loader = XaLoader(loaded)
    with LocalJournal(directory) as journal:
        journal.activate(loader)
        resource = XaResource(journal, journal, loader.loaded, clock_ms=wall_ms)
        resource.start()
        yield journal, resource, loaded


def test_a_thousand_in_doubt_survive_twenty_failovers_and_are_settled_once(tmp_path: Path) -> None:
    with active(tmp_path) as (journal, resource, _):
        journal.add(SHARED, MESSAGE, b"shared").wait()

        def prepare(xid: Xid) -> Vote:
            resource.tpc_begin(xid)
            tx = resource.tx(xid)
            for part in range(2):
                journal.add(journal.new_id(part), MESSAGE, xid.gtrid, tx=tx)
            if xid == XIDS[0]:
                journal.delete(SHARED, tx=tx)
            resource.end(xid)
            return resource.tpc_prepare(xid)

        with ThreadPoolExecutor(THREADS) as pool:
            assert set(pool.map(prepare, XIDS)) == {Vote.COMMIT}

    for _ in range(FAILOVERS):
        with active(tmp_path) as (journal, resource, loaded):
            assert sorted(resource.tpc_recover()) == XIDS
            assert {data for _, data in loaded.records.values()} == {b"shared"}
            with pytest.raises(LockedError):
                journal.delete(SHARED)

    with active(tmp_path) as (_, resource, _), ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(resource.tpc_commit, XIDS[::2]))
        list(pool.map(resource.tpc_rollback, XIDS[1::2]))
    with active(tmp_path) as (journal, resource, loaded):
        assert resource.tpc_recover() == []
        found = sorted(data for _, data in loaded.records.values())
        assert found == sorted(2 * [xid.gtrid for xid in XIDS[::2]])
        journal.add(SHARED, MESSAGE, b"again").wait()
