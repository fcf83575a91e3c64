"""Shards that a route has stopped, in `status`: since when, and how they go on, as their workers last reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from journal.cli.text import duration, moment
from journal.v1.journal_pb2 import RoutesReport


def route_stop(reported: RoutesReport | None, mark_offset: int, waits_since: int) -> dict[str, Any] | None:
    """What `--json` prints of a shard; None if no route has stopped it, or if it has passed the place since.

    `waits_since` is when the oldest frame after the mark was appended, in ms since 1970; 0 if there is none. It is also
    used as the time of the stop, if the worker does not report that.
    """
    if reported is None or not reported.stopped or reported.stopped_at <= mark_offset:
        return None
    return {
        "offset": reported.stopped_at,
        "reason": reported.stopped,
        "since_ms": reported.stopped_since or waits_since or reported.timestamp,
        "waits_since_ms": waits_since or None,
        "worker": reported.worker,
        "reported_ms": reported.timestamp,
    }


def route_notes(stops: Mapping[int, dict[str, Any]], now_ms: float) -> list[str]:
    """Notes on the stopped shards: since when, why, and how they go on."""
    lines = []
    for shard, stop in sorted(stops.items()):
        waits = duration(max(0.0, now_ms - stop["since_ms"]) / 1000)
        since = f"since {moment(stop['since_ms'])} ({waits})"
        lines.append(f"shard {shard} is STOPPED by a route {since}, as {stop['worker']} reported: {stop['reason']}")
    return lines
