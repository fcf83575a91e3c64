"""What operators have asked to be left out of shards that have stopped: the control rows' requests, by shard."""

from __future__ import annotations

from typing import NamedTuple

from journal.kafka.ports import Kafka
from journal.process.clocks import Clock
from journal.topics.control_reading import read_control
from journal.v1.journal_pb2 import SkipRequest


class ShardSkips(NamedTuple):
    """Of one shard, by WAL offset."""

    requests: dict[int, SkipRequest]
    """Frames to be skipped."""
    passes: set[int]
    """Where what no route can send is passed over."""


def read_skips(kafka: Kafka, journal: str, clock: Clock, timeout_s: float) -> dict[int, ShardSkips]:
    """Those of all shards that have any. Raises OperatingError."""
    rows = read_control(kafka, journal, clock, timeout_s)
    found: dict[int, ShardSkips] = {}
    for (shard, offset), request in rows.skips.items():
        found.setdefault(shard, ShardSkips({}, set())).requests[offset] = request
    for shard, offset in rows.route_skips:
        found.setdefault(shard, ShardSkips({}, set())).passes.add(offset)
    return found
