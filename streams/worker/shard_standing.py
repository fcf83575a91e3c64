"""What the worker of one shard does now, what has stopped it, and when it tries again."""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import Enum

from journal.errors import CorruptionError, RouteStopError
from journal.process.clocks import Clock
from streams.routes.counts import ShardCounts

log = logging.getLogger(__name__)

ROUTE_RETRY_S = 10.0
"""How long a shard waits before it tries again, after a route with a missing or unfit topic has stopped it."""

UNREADABLE_RETRY_S = 10.0
"""How long a shard waits before it tries again, after a WAL or table that cannot be read has stopped it. Another
replica of the partition may be whole."""

Stop = CorruptionError | RouteStopError
"""An error that stops a shard until it is mended."""


class ShardState(Enum):
    """What a shard's worker does. `_NEXT` has the transitions."""

    RECOVERING = "recovering"
    RUNNING = "running"
    STOPPED = "stopped"  # stopped, because something cannot be read, applied or sent
    FENCED = "fenced"  # fenced: another worker has initialised the shard's transactional id
    RELEASED = "released"


_NEXT = {
    ShardState.RECOVERING: {ShardState.RUNNING, ShardState.STOPPED, ShardState.RELEASED},
    ShardState.RUNNING: {ShardState.RECOVERING, ShardState.STOPPED, ShardState.FENCED, ShardState.RELEASED},
    ShardState.STOPPED: {ShardState.RECOVERING, ShardState.RELEASED},
    ShardState.FENCED: {ShardState.RECOVERING, ShardState.RELEASED},
    ShardState.RELEASED: set(),
}


class ShardStanding:
    """The state machine of one shard, with the error that stopped it."""

    def __init__(self, shard: int, clock: Clock, counts: ShardCounts | None) -> None:
        """`counts` are the counts of the shard's routes, which also show the stop; None without routes."""
        self.state = ShardState.RECOVERING
        self.stopped_by: Stop | None = None
        """The error that stopped the shard. A route's error stays here while the shard tries again, until the frame
        that the route could not send is checkpointed."""
        self._shard = shard
        self._clock = clock
        self._counts = counts
        self._bad_frame_at: int | None = None
        """The WAL offset of the frame that cannot be applied."""
        self._retry_at: float | None = None

    def become(self, state: ShardState) -> None:
        """Change the state. Raises AssertionError if the transition is not allowed."""
        if state is not self.state and state not in _NEXT[self.state]:
            raise AssertionError(f"shard {self._shard}: {self.state} does not become {state}")
        self.state = state

    def recover(self) -> None:
        """Note that a recovery begins."""
        self.become(ShardState.RECOVERING)
        self._retry_at = None

    def run(self, committed: int) -> None:
        """Note that a recovery has succeeded, at the mark with the WAL offset `committed`."""
        self._bad_frame_at = None
        self.passed(committed)
        self.become(ShardState.RUNNING)

    def passed(self, committed: int) -> None:
        """Note that the shard is checkpointed up to the WAL offset `committed`. An error before it is over then."""
        stop = self.stopped_by
        if stop is not None and not (isinstance(stop, RouteStopError) and stop.offset > committed):
            self.say(None)

    def stop_at_frame(self, offset: int, error: CorruptionError) -> None:
        """Stop at the frame at this WAL offset until an operator has it skipped."""
        self._bad_frame_at = offset
        self.stop_for(error)

    def stop_for_route(self, error: RouteStopError) -> None:
        """Stop before the frame with a message that a route cannot send."""
        self._retry_at = self._clock() + ROUTE_RETRY_S if error.retried else None
        self.stop_for(error)

    def stop_for_a_while(self, error: CorruptionError) -> None:
        """Stop, and try again later: a partition that cannot be read now may be whole in another replica, or be
        mended."""
        self._retry_at = self._clock() + UNREADABLE_RETRY_S
        self.stop_for(error)

    def stop_for(self, error: Stop) -> None:
        """Stop applying frames until an operator has mended the cause of `error`."""
        self.become(ShardState.STOPPED)
        self.say(error)
        log.error("shard %d stopped: %s", self._shard, error)

    def say(self, stop: Stop | None) -> None:
        """Note the error that has stopped the shard, or None; `routes status` shows it if a route is the cause."""
        self.stopped_by = stop
        if self._counts is not None:
            said = (str(stop), stop.offset) if isinstance(stop, RouteStopError) else ("", 0)
            self._counts.stands(*said)

    def is_mended_by(self, skips: Collection[int], passes: Collection[int]) -> bool:
        """Whether an operator has ended the stop, by skipping the frame at one of the WAL offsets `skips`, or by
        leaving out unsendable messages at one of the offsets `passes`."""
        if isinstance(self.stopped_by, RouteStopError):
            return self.state is ShardState.STOPPED and self.stopped_by.offset in passes
        return self._bad_frame_at in skips

    @property
    def wants_retry(self) -> bool:
        """Whether it is time to try again after a stop."""
        return self._retry_at is not None and self._clock() >= self._retry_at
