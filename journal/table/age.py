"""Where a copy of a table partition stands, and how old what lies behind it may be: by the brokers' clock.

Whoever has a copy asks here: the replica, and each `on_change` agent's session. The cleaner leaves alone what was
written within min.compaction.lag, and drops tombstones once they are older than delete.retention.
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
"""What both clocks of this machine said: seconds of the monotonic one, ms of the wall clock."""


class CutOffError(Exception):
    """The log does not go on where a copy stands: what it holds is nobody's state."""


class CopyPlace(NamedTuple):
    """Where a copy of a shard stands: behind its mark's row, which was appended by the broker's clock at `stood_ms` (0:
    there is no mark yet), by a leader of that epoch."""

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
    """Named values of a copy that stands behind the mark before `position`, which was appended by the broker's clock at
    `stood_ms` or later, by a leader of that epoch."""
    return {_name(shard): _PLACE.pack(position, stood_ms, leader_epoch)}


def _name(shard: int) -> bytes:
    return b"position/%d" % shard


class Opening(NamedTuple):
    """Rows below `end`, as far as they are from before `old_ms`, were old when the copy was opened: if this machine's
    wall clock is right."""

    end: int
    old_ms: float

    def may_be_old(self, offset: int, timestamp_ms: int, old_ms: float) -> bool:
        """Whether rows may have been compacted that were appended then; `old_ms` is by the brokers' clock."""
        return timestamp_ms <= old_ms or (offset < self.end and timestamp_ms <= self.old_ms)


class TableAge:
    """What a table's settings and clocks say of its rows."""

    def __init__(self, clock: Clock, wall_ms: Clock, *, delete_retention_ms: int, min_compaction_lag_ms: int) -> None:
        """`wall_ms` is ms since 1970."""
        self._clock = clock
        self._wall_ms = wall_ms
        self._broker_time = BrokerTime(clock)
        self._retention_ms = delete_retention_ms - delete_retention_ms // 10
        self._lag_ms = min_compaction_lag_ms - min_compaction_lag_ms // 10
        self._young_ms = min_compaction_lag_ms / 2
        """Half, as brokers' clocks may differ."""
        self.see = self._broker_time.see
        self.now_ms = self._broker_time.now_ms

    def old_ms(self) -> float:
        """Rows of before may have been compacted, by the brokers' clock."""
        return self.now_ms() - self._young_ms

    def opening(self, end: int) -> Opening:
        """A copy is opened now, and the log ends there."""
        return Opening(end, self._wall_ms() - self._young_ms)

    def may_lack_tombstones(self, stood_ms: float) -> bool:
        """Whether a copy that stood at the end then, by the brokers' clock, may miss tombstones that are gone."""
        return self.now_ms() - stood_ms > self._retention_ms

    def clocks(self) -> Clocks:
        return self._clock(), self._wall_ms()

    def is_long_since(self, then: Clocks) -> bool:
        """Whether rows of before the newest mark of then may be missing by now."""
        return self._ms_since(then) > self._lag_ms

    def is_too_long_since(self, then: Clocks) -> bool:
        """Whether tombstones of after then may be gone by now."""
        return self._ms_since(then) > self._retention_ms

    def _ms_since(self, then: Clocks) -> float:
        """The larger of two answers: one clock stands still while a machine is suspended, the other may be set back."""
        return max((self._clock() - then[0]) * 1000, self._wall_ms() - then[1])
