"""Whether a node is active now, seen from outside: from the control rows, and from the WAL's growth.

This is advice, not safety. An active node commits at least every `fence_check_ms`, a setting of its own that its
epoch's row holds. So a WAL that stands still for twice that time has no active node, or one that cannot write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from journal.errors import ActiveNodeError
from journal.kafka.ports import Kafka, Reader
from journal.process.clocks import Clock
from journal.topics.control_rows import ControlRows, NodeRow
from journal.topics.names import wal_topic
from loaders.node.roles import Role

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class LastActive:
    """The node of the newest epoch, and whether it left cleanly."""

    epoch: int
    node: str
    released: bool
    to: str = ""
    """The successor that the node named when it left; empty if it named none."""
    fence_check_s: float = 0.0
    """While the node is active it commits at least this often; 0 if it did not say."""

    def silence_s(self, fence_check_s: float) -> float:
        """How long the WAL must stand still before this node counts as gone. `fence_check_s` is the caller's own
        setting, used for a node that did not say its own."""
        return 2 * (self.fence_check_s or fence_check_s)


def last_active(rows: ControlRows) -> LastActive | None:
    """The node of the newest epoch; None if the journal was never activated."""
    epoch, released = rows.epoch, rows.released
    if epoch.epoch == 0:
        return None
    fence_check_s = epoch.fence_check_ms / 1000
    if released is None or released.epoch != epoch.epoch:
        return LastActive(epoch.epoch, epoch.node, released=False, fence_check_s=fence_check_s)
    return LastActive(epoch.epoch, epoch.node, released=True, to=released.to, fence_check_s=fence_check_s)


REPORT_INTERVALS_MAX = 2
"""Two reports of a node are at most this many intervals apart: one interval, and another for being late."""

Members = Collection[str] | None
"""Names of the nodes that are in the nodes' group now; None if nobody could say."""


FORGOTTEN_AFTER_MS = 24 * 3600 * 1000
"""A node's last report is kept for this long, for people to read. A node that stopped in order leaves none."""


def is_gone(row: NodeRow, now_ms: float) -> bool:
    """Whether a node's report is late by more than an interval, so that the node counts as dead or cut off from Kafka.
    `now_ms` is the brokers' time, as in reports: this machine's clock may be wrong."""
    return now_ms - row.timestamp > REPORT_INTERVALS_MAX * row.status.report_ms


def long_gone(rows: ControlRows, now_ms: float) -> list[str]:
    """Names of the nodes whose last report is old enough to delete."""
    return [name for name, row in rows.nodes.items() if now_ms - row.timestamp > FORGOTTEN_AFTER_MS]


def newest_report_ms(rows: ControlRows) -> int:
    """The brokers' time of the newest report. While a node is active this is at most one report interval ago."""
    return max((row.timestamp for row in rows.nodes.values()), default=0)


def could_take_over(row: NodeRow, now_ms: float, members: Members) -> bool:
    """Whether a node is a fit standby: it said so recently and belongs to the group. The group notices a dead node when
    its session ends, which may be before its next report is missed."""
    status = row.status
    belongs = members is None or status.name in members
    return status.fit and status.role == Role.STANDBY.value and belongs and not is_gone(row, now_ms)


def fit_standbys(rows: ControlRows, now_ms: float, members: Members = None) -> list[str]:
    """Names of the fit standbys, the best successor first: preferred nodes come first, then those that lag least."""
    fit = [row.status for row in rows.nodes.values() if could_take_over(row, now_ms, members)]
    fit.sort(key=lambda status: (not status.preferred, status.lag_offsets, status.name))
    return [status.name for status in fit]


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


class WalWatch:
    """Measures how long the WAL has stood still, by looking at it again and again. One thread uses it."""

    def __init__(self, kafka: Kafka, journal: str, shards: int, clock: Clock) -> None:
        self._kafka = kafka
        self._topic = wal_topic(journal)
        self._shards = range(shards)
        self._clock = clock
        self._reader: Reader | None = None
        self._ends: dict[int, int] = {}
        self._still_since: float | None = None
        self.still_s = 0.0
        """Seconds between the first and the last look that saw the same ends. The WAL has stood still for at least this
        long."""

    def look(self, timeout_s: float) -> float:
        """Look at the WAL and return `still_s`. Raises KafkaUnavailableError; a WAL that was not seen is not known to
        stand still."""
        if self._reader is None:
            self._reader = self._kafka.reader(self._topic, committed=False)
        began = self._clock()
        ends = {shard: end for shard, (_, end) in self._reader.bounds(self._shards, timeout_s).items()}
        moved, self._ends = ends != self._ends, ends
        if moved or self._still_since is None:
            self._still_since = self._clock()
            self.still_s = 0.0
        else:
            self.still_s = max(0.0, began - self._still_since)
        return self.still_s

    def forget(self) -> None:
        """Forget what was seen so far, because this node has written itself or could not look."""
        self._still_since = None
        self.still_s = 0.0

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def require_no_active_node(
    kafka: Kafka, journal: str, rows: ControlRows, *, clock: Clock, pause: Callable[[float], None], fence_check_s: float
) -> None:
    """Raises ActiveNodeError if a node seems to be active. This watches the WAL for that node's `silence_s`."""
    last = last_active(rows)
    if last is None or last.released:
        return
    shards = rows.require_identity(journal).shards
    if is_writing(kafka, journal, shards, clock=clock, pause=pause, watch_s=last.silence_s(fence_check_s)):
        raise ActiveNodeError(
            f"node {last.node} is active in epoch {last.epoch}: on its machine, --node={last.node} asks it to do "
            "this (send, receive, tx); or stop it; only if it must not go on, fence it with --take-over"
        )
