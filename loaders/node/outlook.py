"""What a node sees of the others: the control rows as they change, whether the WAL grows, and who is in the group.

The node's thread looks at the rows and the WAL. While Kafka does not answer, the rows are the last ones read, the WAL
is not known to stand still, and a standby counts as long as its reports are recent. A process that was stopped for a
while has only old rows when it goes on, so it asks for the rows as of now.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import Protocol

from journal.config import Settings
from journal.errors import CorruptionError, OperatingError
from journal.kafka.broker_time import BrokerTime
from journal.kafka.ports import FOLLOW_MS, Kafka
from journal.process.clocks import LONG_AGO, Clock, Moment
from journal.topics.control_reading import ControlWatcher
from journal.topics.control_rows import ControlRows
from journal.v1.journal_pb2 import NodeStatus
from loaders.node.duty import HandOverRequest
from loaders.node.liveness import (
    LastActive,
    Members,
    WalWatch,
    fit_standbys,
    is_gone,
    last_active,
    long_gone,
    newest_report_ms,
)
from loaders.node.roles import Role

log = logging.getLogger(__name__)

_ASK_S = 2.0
_ROLL_S = 0.5
RECENT_S = 1.0
"""How recently rows must have been read to decide by them. A node looks many times in this time."""
_LOOKS_PER_FENCE_CHECK = 20
"""Looks at the WAL in each `fence_check_ms`. A dead node is noticed up to two looks late; the look that is due when its
silence ends makes up for some of this."""


class Present(Protocol):
    """Who is in the nodes' group (`loaders.node.members`)."""

    @property
    def members(self) -> Members: ...

    def has_left(self, name: str) -> bool:
        """Whether the node was a member and is known to have left."""

    def call(self, timeout_s: float) -> None:
        """Ask who is there now, and wait for the answer for `timeout_s` at most."""


class Outlook:
    """The view of one node. Only the node's thread uses it.

    It has many attributes because a look needs three sources (the control rows, the WAL and the group), and for each of
    them when it was last read and what was found.
    """

    def __init__(
        self,
        kafka: Kafka,
        settings: Settings,
        rows: ControlRows,
        roll: Present,
        *,
        silence_s: float,
        clock: Clock,
        wall_ms: Clock,
        pause: Callable[[float], None],
    ) -> None:
        """`silence_s` is how long the WAL must stand still before the active node counts as gone, unless that node said
        its own limit."""
        self.rows = rows
        self._rows_at = LONG_AGO
        """The time when the last successful look at the control rows began."""
        self._kafka = kafka
        self._settings = settings
        self._clock = clock
        self._wall_ms = wall_ms
        self._pause = pause
        self._watcher: ControlWatcher | None = None
        self._shards = rows.require_identity(settings.journal).shards
        self._wal = WalWatch(kafka, settings.journal, self._shards, clock)
        self._look_every_s = settings.fence_check_ms / 1000 / _LOOKS_PER_FENCE_CHECK
        self._looked_at = -self._look_every_s
        self._silence_s = silence_s
        self._request: tuple[int, str, int] | None = None
        self._request_at = 0.0
        self._broker_time = BrokerTime(clock)
        """The brokers date reports: a machine with a wrong clock must not think that all other nodes are gone."""
        self._broker_time.see(newest_report_ms(rows))
        self._blind: set[str] = set()
        """Sources that cannot be read now, and whose warning was logged."""
        self._roll = roll

    # ---- looking ---------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        """Wait for a control row for `timeout_s` at most, or longer while Kafka does not answer. If the last look is
        not recent, this calls `catch_up`."""
        now = self._now()
        try:
            if self._watcher is None or not self._is_recent(now):
                self.catch_up()
            else:
                self._take(lambda watcher: watcher.poll(timeout_s), now)
        except (OperatingError, CorruptionError) as error:
            self._say("control rows", error)
            self._pause(timeout_s)
        self._note_request()

    def catch_up(self) -> None:
        """Read the control rows as of now. `wait` takes only rows that were already sent to this process, and none are
        sent to a stopped one. Raises OperatingError if Kafka does not answer, and CorruptionError."""
        self._take(lambda watcher: watcher.catch_up(_ASK_S), self._now())
        self._note_request()

    def _now(self) -> Moment:
        return Moment(self._clock(), self._wall_ms() / 1000)

    def _take(self, look: Callable[[ControlWatcher], object], now: Moment) -> None:
        """Read rows with `look`, which begins now. A watcher that met an error is not used again."""
        watcher = self._watcher
        if watcher is None:
            watcher = self._watcher = ControlWatcher(
                self._kafka, self._settings.journal, self._clock, wait_ms=FOLLOW_MS
            )
        try:
            look(watcher)
        except (OperatingError, CorruptionError):
            self._drop_watcher()
            raise
        self._rows_at = now
        if watcher.rows is not self.rows:
            self.rows = watcher.rows
            self._broker_time.see(newest_report_ms(self.rows))
            self._watch_all_shards()
            # a node that reports that it is active has written before: look at the WAL again
            self._looked_at = -self._look_every_s
        self._see("control rows")

    def _watch_all_shards(self) -> None:
        """Watch the shards of a journal that was made anew, which may have another number of them."""
        identity = self.rows.identity
        if identity is not None and identity.shards != self._shards:
            self._shards = identity.shards
            self._wal.close()
            self._wal = WalWatch(self._kafka, self._settings.journal, self._shards, self._clock)

    def look_at_wal(self) -> float:
        """How long the WAL is known to have stood still. This looks at the WAL now and then, when rows have come, and
        as soon as the active node would count as gone."""
        since_s = self._clock() - self._looked_at
        newest = self.newest
        silence_s = self._silence_s if newest is None else newest.silence_s(self._silence_s / 2)
        due = self._wal.still_s < silence_s <= self._wal.still_s + since_s
        if due or since_s >= self._look_every_s:
            self._looked_at = self._clock()
            try:
                self._wal.look(_ASK_S)
            except OperatingError as error:
                self._wal.forget()
                self._say("WAL", error)
            else:
                self._see("WAL")
        return self._wal.still_s

    def forget_wal(self) -> None:
        """Forget what was seen of the WAL: this node is about to write, so growth says nothing about others."""
        self._wal.forget()
        self._wal.close()

    def call_roll(self) -> None:
        """Ask the brokers which standbys are there now, and wait a short time for the answer."""
        self._roll.call(_ROLL_S)

    def _say(self, what: str, error: Exception) -> None:
        """Warn once, because the cause usually lasts for a while."""
        log.log(logging.DEBUG if what in self._blind else logging.WARNING, "the %s cannot be read: %s", what, error)
        self._blind.add(what)

    def _see(self, what: str) -> None:
        if what in self._blind:
            log.info("the %s can be read again", what)
            self._blind.remove(what)

    def _note_request(self) -> None:
        """Note when the request was first seen here. Its age counts from then, as clocks may differ."""
        row = self.rows.hand_over
        seen = None if row is None else (row.epoch, row.to, row.timestamp)
        if seen != self._request:
            self._request, self._request_at = seen, self._clock()

    # ---- what it sees ----------------------------------------------------------------------------------------------

    @property
    def rows_are_recent(self) -> bool:
        """Whether the rows may be decided by: the last look succeeded, and since it began the process was neither
        stopped nor busy for long."""
        return self._is_recent(self._now())

    def _is_recent(self, now: Moment) -> bool:
        return self._rows_at.age_at(now) < RECENT_S

    @property
    def newest(self) -> LastActive | None:
        return last_active(self.rows)

    @property
    def request(self) -> HandOverRequest | None:
        """The newest request to hand over in the control rows."""
        if self._request is None:
            return None
        epoch, to, _ = self._request
        return HandOverRequest(epoch, to, self._clock() - self._request_at)

    @property
    def others_fit(self) -> list[str]:
        """Names of the other standbys that could take over, the best one first."""
        fit = fit_standbys(self.rows, self._broker_time.now_ms(), self._roll.members)
        return [name for name in fit if name != self._settings.node]

    @property
    def long_gone(self) -> list[str]:
        """Names of other nodes whose reports may be deleted."""
        return [name for name in long_gone(self.rows, self._broker_time.now_ms()) if name != self._settings.node]

    @property
    def others_standing_by(self) -> bool:
        """Whether another node is a standby, fit or not, in the group or about to join it."""
        now_ms, own = self._broker_time.now_ms(), self._settings.node
        return any(
            row.status.role == Role.STANDBY.value
            and name != own
            and not is_gone(row, now_ms)
            and not self._roll.has_left(name)
            for name, row in self.rows.nodes.items()
        )

    @property
    def activating(self) -> str:
        """The name of another node that is activating, according to its reports and the group; empty if there
        is none."""
        now_ms, own = self._broker_time.now_ms(), self._settings.node
        found = (
            name
            for name, row in self.rows.nodes.items()
            if row.status.role == Role.ACTIVATING.value
            and name != own
            and not is_gone(row, now_ms)
            and not self._roll.has_left(name)
        )
        return next(found, "")

    @property
    def active_preferred(self) -> bool:
        newest = self.newest
        row = self.rows.nodes.get(newest.node) if newest is not None else None
        return row is not None and row.status.preferred

    def namesake(self) -> NodeStatus | None:
        """Another running node with this node's name, if the rows show one. This uses the machine's clock, because the
        brokers' time is unknown before this node's first report."""
        row = self.rows.nodes.get(self._settings.node)
        if row is None or (row.status.host, row.status.pid) == (socket.gethostname(), os.getpid()):
            return None
        return None if is_gone(row, self._wall_ms()) else row.status

    def close(self) -> None:
        self._drop_watcher()
        self._wal.close()

    def _drop_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
