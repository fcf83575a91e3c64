"""The worker's shell: one class that Faust and the simulation both drive. The glue around it decides nothing.

    assigned / revoked     shards come and go
    frames                 WAL records of one shard, in order
    tick                   checkpoints that are due, repairs that were asked for, recoveries that wait
    seeks                  where the glue must read from now on

All calls block, and come from one thread. A checkpoint may run beside them (`in_background`), while frames of other
shards are applied: nothing else is asked of its shard until it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future

from journal.errors import CorruptionError, OperatingError
from journal.kafka.control import read_control
from journal.kafka.ports import Clock, Kafka
from journal.local.ports import LocalStore
from journal.v1.journal_pb2 import SkipRequest
from streams.shard import ShardConfig, ShardState, ShardWorker
from streams.standby import StandbyCopies

log = logging.getLogger(__name__)

IDLE_TICK_S = 1.0
"""The longest pause between two ticks; also how often a stopped shard looks for a skip request."""

STANDBY_AFTER_S = 2.0
"""Shards that a rebalance took may come back at once: their copies are followed when it has settled."""

InBackground = Callable[[Callable[[], bool]], "Future[bool]"]
"""Begins a call and gives its future."""


def at_once(call: Callable[[], bool]) -> Future[bool]:
    """Not in the background at all."""
    future: Future[bool] = Future()
    future.set_result(call())
    return future


class Worker:
    """The shards that this process serves."""

    def __init__(
        self,
        config: ShardConfig,
        kafka: Kafka,
        stores: Callable[[int], LocalStore],
        *,
        clock: Clock,
        wall_ms: Clock,
        fenced_pause_s: float,
        in_background: InBackground = at_once,
        standby: StandbyCopies | None = None,
    ) -> None:
        """`stores` opens a shard's local store. `fenced_pause_s` is how long a fenced shard waits for being revoked.

        `standby` keeps copies of the shards that are not this worker's.
        """
        self._config = config
        self._kafka = kafka
        self._stores = stores
        self._clock = clock
        self._wall_ms = wall_ms
        self._fenced_pause_s = fenced_pause_s
        self._in_background = in_background
        self._standby = standby
        self._moved_at = clock()
        self._under_way: dict[int, Future[bool]] = {}
        self._shards: dict[int, ShardWorker] = {}
        self._released: dict[int, int] = {}
        self._seeks: dict[int, int] = {}
        self._retry_at: dict[int, float] = {}
        self._skips_read_at = clock()

    def assigned(self, shards: Collection[int]) -> dict[int, int]:
        """Take shards over: the WAL offset to read each from. One that cannot be recovered now is tried again."""
        self._moved_at = self._clock()
        for number in sorted(set(shards) - set(self._shards)):
            self._released.pop(number, None)
            store = (self._standby.take(number) if self._standby else None) or self._stores(number)
            self._shards[number] = ShardWorker(
                number, self._config, self._kafka, store, clock=self._clock, wall_ms=self._wall_ms
            )
        self._read_skips()
        for number in shards:
            self._recover(self._shards[number])
        return self.seeks()

    def revoked(self, shards: Collection[int]) -> None:
        """Checkpoint what was gathered, and let go."""
        self._moved_at = self._clock()
        for number in shards:
            shard = self._shards.pop(number, None)
            if shard is not None:
                under_way = self._under_way.pop(number, None)
                if under_way is not None:
                    under_way.result()
                shard.checkpoint_if_due(now=True)
                if shard.committed >= 0:
                    self._released[number] = shard.committed + 1
                shard.release()
            self._seeks.pop(number, None)
            self._retry_at.pop(number, None)

    def frames(self, shard: int, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Apply records (offset, timestamp in ms, value) of one shard; checkpoints if they are due.

        Records of a shard that is not held, or that wants to be read from elsewhere, are ignored.
        """
        held = self._shards.get(shard)
        if held is None:
            return
        self._finish(held)
        if shard in self._seeks or shard in self._retry_at:
            return
        held.take(records)
        self._checkpoint(held)

    def tick(self) -> float:
        """Do what time asks for; seconds until the next tick is wanted."""
        now = self._clock()
        if now - self._skips_read_at >= IDLE_TICK_S and self.stopped():
            self._read_skips()
        if self._standby is not None and now - self._moved_at >= STANDBY_AFTER_S:
            self._standby.follow(set(range(self._config.shards)) - set(self._shards))
        wanted = IDLE_TICK_S
        for shard in list(self._shards.values()):
            if not self._is_idle(shard):
                continue
            retry_at = self._retry_at.get(shard.shard)
            if retry_at is not None and now >= retry_at:
                self._recover(shard)
            else:
                self._checkpoint(shard)
            due = None if shard.shard in self._under_way else shard.due_in()
            if due is not None:
                wanted = min(wanted, due)
        return wanted

    def seeks(self) -> dict[int, int]:
        """Shards that must be read from another offset than the next, once each. Read nothing else of them before."""
        seeks, self._seeks = self._seeks, {}
        return seeks

    def applied(self) -> dict[int, int]:
        """Per shard the next WAL offset after its committed mark; of a revoked shard, that of its last one."""
        return self._released | {
            shard.shard: shard.committed + 1 for shard in self._shards.values() if shard.committed >= 0
        }

    def stopped(self) -> dict[int, Exception]:
        """Shards that stopped at a record that cannot be applied, and why."""
        return {shard.shard: shard.stopped_by for shard in self._shards.values() if shard.stopped_by is not None}

    def states(self) -> dict[int, ShardState]:
        return {shard.shard: shard.state for shard in self._shards.values()}

    def stop(self) -> None:
        """A clean end: checkpoint at once, so that the next owner replays nothing."""
        self.revoked(list(self._shards))
        if self._standby is not None:
            self._standby.close()

    def _checkpoint(self, shard: ShardWorker) -> None:
        """Begin a checkpoint that is due."""
        if shard.shard in self._retry_at:
            return
        if shard.due_in() == 0.0:
            self._under_way[shard.shard] = self._in_background(shard.checkpoint_if_due)
            self._is_idle(shard)
        else:
            self._settle(shard, shard.checkpoint_if_due())

    def _is_idle(self, shard: ShardWorker) -> bool:
        """Whether no checkpoint of the shard is under way."""
        future = self._under_way.get(shard.shard)
        if future is not None and not future.done():
            return False
        self._finish(shard)
        return True

    def _finish(self, shard: ShardWorker) -> None:
        """Wait for the shard's checkpoint, if one is under way."""
        future = self._under_way.pop(shard.shard, None)
        if future is not None:
            self._settle(shard, future.result())

    def _settle(self, shard: ShardWorker, done: bool) -> None:
        """Do what the end of a checkpoint asks for."""
        if not done:
            self._recover(shard)
        elif shard.state is ShardState.FENCED:
            # the owner that fenced this one most likely got the shard in a rebalance that has not reached us yet
            self._retry_at[shard.shard] = self._clock() + self._fenced_pause_s

    def _recover(self, shard: ShardWorker) -> None:
        self._retry_at.pop(shard.shard, None)
        try:
            self._seeks[shard.shard] = shard.recover()
        except OperatingError as error:
            log.warning("shard %d cannot be recovered yet: %s", shard.shard, error)
            self._retry_at[shard.shard] = self._clock() + IDLE_TICK_S
        except CorruptionError as error:
            shard.stop_for(error)

    def _read_skips(self) -> None:
        self._skips_read_at = self._clock()
        try:
            rows = read_control(self._kafka, self._config.journal, self._clock, self._config.request_timeout_s)
        except OperatingError as error:
            log.warning("skip requests cannot be read yet: %s", error)
            return
        by_shard: dict[int, dict[int, SkipRequest]] = {}
        for (number, offset), request in rows.skips.items():
            by_shard.setdefault(number, {})[offset] = request
        for shard in self._shards.values():
            self._finish(shard)
            if shard.allow_skips(by_shard.get(shard.shard, {})):
                self._recover(shard)
