"""The figures of a shard's routes, as they are reported."""

from __future__ import annotations

from collections import Counter

from journal.routing.latency import PEAK_MS
from streams.routes.counts import Checkpointed, ShardCounts


def test_one_old_timestamp_is_no_latency_of_routes_and_the_most_is_that_of_the_last_minutes() -> None:
    """A node whose clock was wrong for a moment wrote the frame."""
    now_ms = 1_800_000_000_000
    counts = ShardCounts(["r"], lambda: now_ms)

    def latency() -> tuple[float, float]:
        found = counts.status(b"", 0, "worker", now_ms)
        return found.latency_ms, found.latency_ms_max

    def commit(oldest_ms: int) -> None:
        counts.committed(Checkpointed(Counter(r=1), oldest_ms=oldest_ms), 7, now_ms)

    commit(now_ms - 7000)
    commit(1)
    assert latency() == (7000, 7000)
    now_ms += PEAK_MS
    commit(now_ms - 5)
    assert latency() == (5, 7000)
    now_ms += PEAK_MS
    assert latency() == (5, 5)
