"""What a node sees of the others: the control rows as they change, whether the WAL moves, and who is in their group.

The first two are looked at by the node's thread. While Kafka does not answer the rows are those last read, the WAL is
not known to stand still, and a standby counts as long as its reports do. What a process was sent before it was stopped
is old when it goes on: it asks for the rows as of then.
"""

from __future__ import annotations

import logging
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
from loaders.node.duty import Request
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
"""Rows are looked at many times in that long."""
_LOOKS_PER_FENCE_CHECK = 20
"""A node that died is noticed later by up to two of these pauses, less what the last look is earlier for knowing when
it is due."""


class Present(Protocol):
    """Who is in the nodes' group (`loaders.node.members`)."""

    @property
    def members(self) -> Members: ...

    def has_left(self, name: str) -> bool:
        """Whether it was a member, and is known not to be one now."""

    def call(self, timeout_s: float) -> None:
        """Find out now, as far as that is possible in time."""


class Outlook:
    """Used by one thread."""

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
        """`silence_s` is for how long the WAL must stand still before that means something, if the active node did not
        say itself."""
        self.rows = rows
        self._rows_at = LONG_AGO
        """When the last look at them began that succeeded."""
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
        """Reports are dated by the brokers: a machine whose clock is wrong must not think that all others are gone."""
        self._broker_time.see(newest_report_ms(rows))
        self._blind: set[str] = set()
        """What cannot be read, and was said to be so."""
        self._roll = roll

    # ---- looking ---------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        """Wait for a control row, at most so long (longer when Kafka does not answer); `catch_up` where the last look
        is not recent."""
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
        """Have the control rows as of now; `wait` takes what this process was sent, and one that was stopped was sent
        nothing. Raises OperatingError if they cannot be had, and CorruptionError."""
        self._take(lambda watcher: watcher.catch_up(_ASK_S), self._now())
        self._note_request()

    def _now(self) -> Moment:
        return Moment(self._clock(), self._wall_ms() / 1000)

    def _take(self, look: Callable[[ControlWatcher], object], now: Moment) -> None:
        """The rows after a look that begins now; a watcher that met an error is not used again."""
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
            # a node that says that it is active has written before: what is known of the WAL must not be older
            self._looked_at = -self._look_every_s
        self._see("control rows")

    def _watch_all_shards(self) -> None:
        """A journal that was made anew may have others."""
        identity = self.rows.identity
        if identity is not None and identity.shards != self._shards:
            self._shards = identity.shards
            self._wal.close()
            self._wal = WalWatch(self._kafka, self._settings.journal, self._shards, self._clock)

    def look_at_wal(self) -> float:
        """For how long the WAL is known to have stood still; looked at now and then, when rows have come, and as soon
        as that has been long enough if it still does."""
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
        """This node is to write it itself: what was seen says nothing about others any more."""
        self._wal.forget()
        self._wal.close()

    def call_roll(self) -> None:
        """Know which standbys are there as of now, if brokers say so in time."""
        self._roll.call(_ROLL_S)

    def _say(self, what: str, error: Exception) -> None:
        """Once: what is wrong stays so for a while."""
        log.log(logging.DEBUG if what in self._blind else logging.WARNING, "the %s cannot be read: %s", what, error)
        self._blind.add(what)

    def _see(self, what: str) -> None:
        if what in self._blind:
            log.info("the %s can be read again", what)
            self._blind.remove(what)

    def _note_request(self) -> None:
        """Its age counts from when it was first seen here: clocks may differ."""
        row = self.rows.hand_over
        seen = None if row is None else (row.epoch, row.to, row.timestamp)
        if seen != self._request:
            self._request, self._request_at = seen, self._clock()

    # ---- what it sees ----------------------------------------------------------------------------------------------

    @property
    def rows_are_recent(self) -> bool:
        """Whether the rows may be decided by: the last look succeeded, and the process was not stopped since it began,
        or busy for long."""
        return self._is_recent(self._now())

    def _is_recent(self, now: Moment) -> bool:
        return self._rows_at.age_at(now) < RECENT_S

    @property
    def newest(self) -> LastActive | None:
        return last_active(self.rows)

    @property
    def request(self) -> Request | None:
        """The hand-over that somebody asked for last."""
        if self._request is None:
            return None
        epoch, to, _ = self._request
        return Request(epoch, to, self._clock() - self._request_at)

    @property
    def others_fit(self) -> list[str]:
        """Standbys that could take over, the best one first."""
        fit = fit_standbys(self.rows, self._broker_time.now_ms(), self._roll.members)
        return [name for name in fit if name != self._settings.node]

    @property
    def long_gone(self) -> list[str]:
        """Other nodes whose reports may be deleted."""
        return [name for name in long_gone(self.rows, self._broker_time.now_ms()) if name != self._settings.node]

    @property
    def others_standing_by(self) -> bool:
        """Whether there is a standby, fit or not. One that is only about to join the group is."""
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
        """Another node that is about to be active, as far as its reports and the group say; empty: none."""
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
        """Another running node with this one's name, if the rows show one: by this machine's clock, as nothing is
        known of the brokers' before the first report of this node."""
        row = self.rows.nodes.get(self._settings.node)
        return None if row is None or is_gone(row, self._wall_ms()) else row.status

    def close(self) -> None:
        self._drop_watcher()
        self._wal.close()

    def _drop_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
