"""How `status` and `routes status` show shards that a route has stopped."""

from __future__ import annotations

from journal.cli.routes.running import as_it_stands
from journal.cli.status.routes import route_notes, route_stop
from journal.v1.journal_pb2 import RoutesReport

REPORTED = RoutesReport(shard=3, worker="w1", timestamp=1_700_000_060_000, stopped="route r: no-key", stopped_at=41)
SINCE = 1_700_000_000_000


def test_a_stopped_shard_says_since_when_why_and_who_reported_it() -> None:
    stop = route_stop(REPORTED, 40, SINCE)
    assert stop == {
        "offset": 41,
        "reason": "route r: no-key",
        "since_ms": SINCE,
        "waits_since_ms": SINCE,
        "worker": "w1",
        "reported_ms": 1_700_000_060_000,
    }
    (line,) = route_notes({3: stop}, SINCE + 90_000)
    for part in ("shard 3 is STOPPED by a route", "2023-11-14 22:13:20 UTC (1 min 30 s)", "w1", "route r: no-key"):
        assert part in line


def test_what_the_mark_has_passed_or_no_route_has_stopped_is_not_shown() -> None:
    assert route_stop(REPORTED, 41, SINCE) is None
    assert route_stop(RoutesReport(shard=3), 40, SINCE) is None
    assert route_stop(None, 40, SINCE) is None
    assert (as_it_stands(REPORTED, 40), as_it_stands(REPORTED, 41).stopped) == (REPORTED, "")
    assert as_it_stands(REPORTED, 41).worker == "w1"


def test_a_frame_that_cannot_be_asked_for_counts_from_the_report() -> None:
    stop = route_stop(REPORTED, 40, 0)
    assert stop is not None
    assert stop["since_ms"] == REPORTED.timestamp


def test_the_moment_that_the_worker_tells_goes_before_that_of_the_frame() -> None:
    told = RoutesReport(worker="w1", stopped="route r: no-key", stopped_at=41, stopped_since=SINCE + 5)
    stop = route_stop(told, 40, SINCE)
    assert stop is not None
    assert (stop["since_ms"], stop["waits_since_ms"]) == (SINCE + 5, SINCE)
