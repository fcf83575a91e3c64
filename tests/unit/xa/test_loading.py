"""What a load tells XA, and what it passes on."""

from __future__ import annotations

from journal.load.loading import LoadCounts
from journal.v1.store_pb2 import MESSAGE, OUTCOME
from journal.xa.loading import OutcomeFound, PreparedFound, XaLoader
from tests.support.in_process import Collected

COUNTS = LoadCounts(2, 0, 1, 0)


def tell(loader: XaLoader) -> None:
    loader.begin({})
    loader.record(1, MESSAGE, b"message", (), (0, 0, 0))
    loader.record(2, OUTCOME, b"outcome", (), (0, 0, 0))
    loader.prepared(9, b"xid", ())
    loader.complete(COUNTS)


def test_branches_and_outcomes_are_collected_and_everything_is_passed_on() -> None:
    inner = Collected()
    loader = XaLoader(inner)
    tell(loader)
    assert loader.loaded.prepared == [PreparedFound(9, b"xid")]
    assert loader.loaded.outcomes == [OutcomeFound(2, b"outcome")]
    assert inner.records == {1: (MESSAGE, b"message"), 2: (OUTCOME, b"outcome")}
    assert inner.in_doubt == {9: (b"xid", [])}
    assert inner.counts == COUNTS


def test_a_second_load_begins_anew() -> None:
    loader = XaLoader()
    tell(loader)
    tell(loader)
    assert len(loader.loaded.prepared) == len(loader.loaded.outcomes) == 1
