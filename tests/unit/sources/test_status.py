"""How sources stand, as they are reported."""

from __future__ import annotations

from journal.routing.latency import PEAK_MS
from journal.sources.status import SourcesStatus, SourceStatus


def test_latency_is_from_the_oldest_record_of_the_last_batch_to_its_commit_and_the_most_is_kept() -> None:
    now_ms = [5000.0]
    status = SourcesStatus({"in": SourceStatus("in")}, lambda: now_ms[0])

    def latency() -> tuple[float, float]:
        (found,) = status.as_json()["sources"]
        return found["latency_ms"], found["latency_ms_max"]

    assert latency() == (0, 0)
    status.committed("in", 3000)
    assert latency() == (2000, 2000)
    status.committed("in", 4999)
    assert latency() == (1, 2000)
    status.committed("in", 0)
    status.committed("in", 6000)
    assert latency() == (0, 2000)


def test_one_old_timestamp_is_no_latency_and_the_most_is_that_of_the_last_minutes() -> None:
    now_ms = [1.8e12]
    status = SourcesStatus({"in": SourceStatus("in")}, lambda: now_ms[0])

    def latency() -> tuple[float, float]:
        (found,) = status.as_json()["sources"]
        return found["latency_ms"], found["latency_ms_max"]

    status.committed("in", int(now_ms[0]) - 7000)
    status.committed("in", 1)
    assert latency() == (7000, 7000)
    now_ms[0] += PEAK_MS
    status.committed("in", int(now_ms[0]) - 5)
    assert latency() == (5, 7000)
    now_ms[0] += PEAK_MS
    assert latency() == (5, 5)
