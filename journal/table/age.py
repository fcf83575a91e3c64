"""Where a copy of a table partition stands, and how old the rows behind that place may be, by the brokers' clock.

The replica and each `on_change` agent's session use it. The age matters because the log cleaner compacts no rows
younger than min.compaction.lag, and drops tombstones that are older than delete.retention.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from journal.disk.ports import LocalStore
from journal.kafka.broker_time import BrokerTime
from journal.kafka.ports import LogRecord
from journal.process.clocks import Clock

NO_EPOCH = -1
_PLACE = struct.Struct(">qqi")

Clocks = tuple[float, float]
"""A reading of both clocks of this machine: seconds of the monotonic clock, and milliseconds of the wall clock."""


class CutOffError(Exception):
    """The log does not continue the state that a copy holds, so the copy may hold a state that never was."""


class CopyPlace(NamedTuple):
    """The place behind the mark's row at which a copy of a shard stands. `stood_ms` is the time of that row by the
    broker's clock, 0 if the copy has no mark yet; `leader_epoch` is that of the leader that appended the row."""

    position: int
    stood_ms: int
    leader_epoch: int = NO_EPOCH


def place_behind(record: LogRecord) -> CopyPlace:
    epoch = NO_EPOCH if record.leader_epoch is None else record.leader_epoch
    return CopyPlace(record.offset + 1, record.timestamp, epoch)


def stored_place(store: LocalStore, shard: int) -> CopyPlace | None:
    value = store.named(_name(shard))
    return None if value is None else CopyPlace(*_PLACE.unpack(value))


def note_checkpoint(shard: int, position: int, stood_ms: int, leader_epoch: int = NO_EPOCH) -> dict[bytes, bytes]:
    """The named values that a store keeps for a copy's place: it is the offset `position`, behind the mark. The mark
    was appended at `stood_ms` of the broker's clock or later, by a leader of that epoch."""
    return {_name(shard): _PLACE.pack(position, stood_ms, leader_epoch)}


def _name(shard: int) -> bytes:
    return b"position/%d" % shard


class Opening(NamedTuple):
    """What was known when a copy was opened: the `end` of its log, and the time `old_ms` by this machine's wall clock.
    Rows before `end` that were appended before `old_ms` may have been compacted by then."""

    end: int
    old_ms: float

    def may_be_old(self, offset: int, timestamp_ms: int, old_ms: float) -> bool:
        """Whether a row that was appended at `timestamp_ms` may have been compacted. `old_ms` is the limit by the
        brokers' clock."""
        return timestamp_ms <= old_ms or (offset < self.end and timestamp_ms <= self.old_ms)


class TableAge:
    """The age of a table's rows, judged by the topic's settings and the clocks."""

    def __init__(self, clock: Clock, wall_ms: Clock, *, delete_retention_ms: int, min_compaction_lag_ms: int) -> None:
        """`wall_ms` gives milliseconds since 1970."""
        self._clock = clock
        self._wall_ms = wall_ms
        self._broker_time = BrokerTime(clock)
        self._retention_ms = delete_retention_ms - delete_retention_ms // 10
        self._lag_ms = min_compaction_lag_ms - min_compaction_lag_ms // 10
        self._young_ms = min_compaction_lag_ms / 2
        """An age at which no row can have been compacted yet: half of the compaction lag, because brokers' clocks may
        differ."""
        self.see = self._broker_time.see
        self.now_ms = self._broker_time.now_ms

    def old_ms(self) -> float:
        """The time, by the brokers' clock, before which appended rows may have been compacted."""
        return self.now_ms() - self._young_ms

    def opening(self, end: int) -> Opening:
        """The `Opening` of a copy that is opened now, whose log ends at `end`."""
        return Opening(end, self._wall_ms() - self._young_ms)

    def may_lack_tombstones(self, stood_ms: float) -> bool:
        """Whether a copy that stood at the end of the log at `stood_ms`, by the brokers' clock, may have missed
        tombstones that the cleaner has dropped since."""
        return self.now_ms() - stood_ms > self._retention_ms

    def clocks(self) -> Clocks:
        return self._clock(), self._wall_ms()

    def is_long_since(self, then: Clocks) -> bool:
        """Whether rows older than the mark that was the newest at the time `then` may have been compacted by now."""
        return self._ms_since(then) > self._lag_ms

    def is_too_long_since(self, then: Clocks) -> bool:
        """Whether tombstones written after the time `then` may have been dropped by now."""
        return self._ms_since(then) > self._retention_ms

    def _ms_since(self, then: Clocks) -> float:
        """Milliseconds since the time `then`, by the clock that shows more: the monotonic clock may stand still while a
        machine is suspended, and the wall clock may be set back."""
        return max((self._clock() - then[0]) * 1000, self._wall_ms() - then[1])
