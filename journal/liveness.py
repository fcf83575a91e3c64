"""Whether a node is active now, seen from outside: from the control rows and from the WAL moving.

Advice, not safety: an active node commits at least every `fence_check_ms`, so a WAL that stands still for twice that
has no active node, or one that cannot write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from journal.errors import ActiveNodeError
from journal.kafka.control import ControlRows, wal_topic
from journal.kafka.ports import Clock, Kafka

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class LastActive:
    """The node of the newest epoch, and whether it left cleanly."""

    epoch: int
    node: str
    released: bool


def last_active(rows: ControlRows) -> LastActive | None:
    """None if the journal was never activated."""
    if rows.epoch.epoch == 0:
        return None
    released = rows.released is not None and rows.released.epoch == rows.epoch.epoch
    return LastActive(rows.epoch.epoch, rows.epoch.node, released)


def is_writing(
    kafka: Kafka, journal: str, shards: int, *, clock: Clock, pause: Callable[[float], None], watch_s: float
) -> bool:
    """Whether any shard of the WAL grows within `watch_s`; returns as soon as one does."""
    reader = kafka.reader(wal_topic(journal), committed=False)
    try:
        before = {shard: reader.start_and_end(shard, watch_s)[1] for shard in range(shards)}
        until = clock() + watch_s
        while clock() < until:
            pause(_LOOK_S)
            if any(reader.start_and_end(shard, watch_s)[1] != end for shard, end in before.items()):
                return True
        return False
    finally:
        reader.close()


def require_no_active_node(
    kafka: Kafka, journal: str, rows: ControlRows, *, clock: Clock, pause: Callable[[float], None], fence_check_s: float
) -> None:
    """Raises ActiveNodeError if a node seems to be active; takes up to twice `fence_check_s` to find it dead."""
    last = last_active(rows)
    if last is None or last.released:
        return
    shards = rows.require_identity(journal).shards
    if is_writing(kafka, journal, shards, clock=clock, pause=pause, watch_s=2 * fence_check_s):
        raise ActiveNodeError(
            f"node {last.node} is active in epoch {last.epoch}: stop it, or fence it with --take-over"
        )
