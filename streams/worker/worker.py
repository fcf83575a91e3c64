"""The worker's shell: one class that Faust and the simulation both drive. The glue around it decides nothing.

    assigned / revoked     shards come and go
    frames                 WAL records of one shard, in order
    tick                   checkpoints that are due, repairs that were asked for, recoveries that wait
    seeks                  where the glue must read from now on

All calls block, and come from one thread. Checkpoints and recoveries may run in the background (`checkpointing`,
`recovering`) while frames of other shards are applied; no other call is made for their shard until they have ended.

A revoked shard is kept until its new owner is known. If it comes back, it continues where it was, without a new init.
That is safe: if another worker had the shard in between, its init has fenced this worker's producer, and the broker
refuses the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial

from journal.disk.ports import LocalStore
from journal.errors import CorruptionError
from journal.kafka.ports import Kafka
from journal.process.background import InBackground, at_once
from journal.process.clocks import Clock
from journal.process.waits import waited
from journal.v1.journal_pb2 import RoutesReport
from streams.reading.records import Record
from streams.worker.held_shard import HeldShard, ShardOwner, ShardTasks
from streams.worker.shard import ShardWorker
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_standing import ShardState
from streams.worker.skips import ShardSkips, SkipReading
from streams.worker.standby import StandbyCopies

IDLE_TICK_S = 1.0
"""The longest pause between two ticks."""

RECOVERING_TICK_S = 0.01
"""The longest pause between two ticks while a shard recovers. It is short, because a node may wait for the shard at its
gate."""

REVOKE_WAIT_S = 2.0
"""How long the last checkpoints before a rebalance may take. No shard moves until all members have joined again, so the
limit is short. If another worker has the shard by the time that a checkpoint ends, the broker refuses it."""

END_WAIT_S = 10.0
"""How long a worker that ends waits for background work. None of its shards moves until it has left its group."""

STANDBY_AFTER_S = 2.0
"""How long after a rebalance the standby copies are followed, because shards that it took away may come back at
once."""

_OPENING_ENDS = "it ends when the disk answers; if it hangs, kill this worker, and another one takes the shard over"


def _nothing() -> None: ...


class Worker:
    """The shards that this process serves.

    Most attributes are arguments that it needs to open a shard; only `_shards` and `_released` are its own state.
    """

    def __init__(
        self,
        config: ShardConfig,
        kafka: Kafka,
        stores: Callable[[int], LocalStore],
        *,
        clock: Clock,
        wall_ms: Clock,
        fenced_pause_s: float,
        checkpointing: InBackground = at_once,
        recovering: InBackground = at_once,
        opening: InBackground = at_once,
        reading: InBackground = at_once,
        standby: StandbyCopies | None = None,
        require_place: Callable[[], None] = _nothing,
    ) -> None:
        """`stores` opens a shard's local store. `fenced_pause_s` is how long a fenced shard waits for being revoked.

        `opening` opens shards; the worker waits for it, so it must not share threads with the recoveries. `reading` is
        where the control rows are read. `standby` keeps copies of the shards that are not this worker's.
        """
        self._config = config
        self._kafka = kafka
        self._stores = stores
        self._clock = clock
        self._wall_ms = wall_ms
        self._tasks = ShardTasks(checkpointing, recovering, clock, fenced_pause_s)
        self._opening = opening
        self._standby = standby
        self._require_place = require_place
        self._moved_at = clock()
        """When shards last came or went."""
        self._shards: dict[int, HeldShard] = {}
        self._released: dict[int, int] = {}
        """The WAL offset behind the last mark of each shard that was released."""
        self._skips = SkipReading(kafka, config, clock, reading)

    # ---- assignment and revocation
    # ------------------------------------------------------------------------------------

    def assigned(self, shards: Collection[int]) -> dict[int, int]:
        """Serve these shards and no others. Returns the WAL offset from which to read each shard that is ready; `seeks`
        gives the others later.

        A shard that cannot be recovered now is tried again.
        """
        self._moved_at = self._clock()
        for number, held in self._shards.items():
            held.assign(mine=number in shards)
        self._open(sorted(set(shards) - self._shards.keys()))
        recovering = [held.resume() for held in self._mine()]
        if any(recovering):
            self._skips.begin()
            self._take_skips()
        self._release()
        return self.seeks()

    def _open(self, numbers: Sequence[int]) -> None:
        opening = [self._opening(partial(self._open_store, number)) for number in numbers]
        for number, future in zip(numbers, opening, strict=True):
            self._released.pop(number, None)
            store = self._opened(number, future)
            shard = ShardWorker(number, self._config, self._kafka, store, clock=self._clock, wall_ms=self._wall_ms)
            self._shards[number] = HeldShard(shard, self._tasks)

    def _opened(self, number: int, opening: Future[LocalStore]) -> LocalStore:
        """The shard's copy, once it is open. The wait has no limit, because a copy that may open later must not be
        opened twice."""
        copy = f"the local copy of shard {number} to open"
        waited(lambda timeout_s: bool(wait([opening], timeout_s).done), None, copy, _OPENING_ENDS)
        return opening.result()

    def _open_store(self, number: int) -> LocalStore:
        return (self._standby.take(number) if self._standby else None) or self._stores(number)

    def _mine(self) -> list[HeldShard]:
        """The shards that the group has given to this worker, in order."""
        return [held for _, held in sorted(self._shards.items()) if held.owner is ShardOwner.THIS]

    def revoked(self, shards: Collection[int]) -> None:
        """Checkpoint the gathered frames, and do nothing more until `assigned` says which worker has these shards."""
        self._moved_at = self._clock()
        checkpoints = [self._shards[number].revoke() for number in shards if number in self._shards]
        wait([checkpoint for checkpoint in checkpoints if checkpoint is not None], REVOKE_WAIT_S)

    def _release(self) -> None:
        """Release shards that another worker has, and keep their local copies for the next time."""
        for number, held in sorted(self._shards.items()):
            if held.owner is not ShardOwner.OTHER or not held.is_idle():
                continue
            if held.shard.committed >= 0:
                self._released[number] = held.shard.committed + 1
            held.shard.release()
            del self._shards[number]

    def stop(self) -> None:
        """End in order: checkpoint at once, so that the next owner replays nothing. A shard that is held up is left as
        it is; `states` still names it."""
        self.revoked(list(self._shards))
        for held in self._shards.values():
            held.owner = ShardOwner.OTHER
        wait([held.checkpoint for held in self._shards.values() if held.checkpoint is not None], END_WAIT_S)
        self._give_up_recoveries()
        if self._config.routes is not None:
            self._config.routes.close()
        self._release()
        if self._standby is not None:
            self._standby.close()

    def abandon(self) -> None:
        """End after an error: all background work ends, and shards are left as they are."""
        self._give_up_recoveries()

    def held_up(self) -> list[int]:
        """Shards with a checkpoint or recovery that is still running, so that their copies are in use."""
        return sorted(number for number, held in self._shards.items() if held.is_held_up)

    def _give_up_recoveries(self) -> None:
        """Drop recoveries that have not begun, and end the others early."""
        recoveries = [held.give_up() for held in self._shards.values()]
        wait([recovery for recovery in recoveries if recovery is not None], END_WAIT_S)

    # ---- work --------------------------------------------------------------------------------------------------------

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of one shard; checkpoints if they are due.

        Records are ignored if the worker does not have the shard, or if the shard must be read from another offset.
        """
        held = self._shards.get(shard)
        if held is not None and held.is_read():
            held.take(records)

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        """Stop a shard whose WAL cannot be read on, after a checkpoint of everything before that."""
        held = self._shards.get(shard)
        if held is not None and held.is_read():
            held.stop_unreadable(error)

    def tick(self) -> float:
        """Do the work that is due at this time; returns the seconds until the next tick."""
        self._require_place()
        now = self._clock()
        if self._skips.is_due and ShardState.STOPPED in self.states().values():
            self._skips.begin()
        self._take_skips()
        if self._standby is not None and now - self._moved_at >= STANDBY_AFTER_S:
            self._standby.follow(set(range(self._config.shards)) - set(self._shards))
        due = [held.tick(now) for held in self._mine()]
        wanted = min([IDLE_TICK_S, *(due_s for due_s in due if due_s is not None)])
        self._release()
        if self._config.routes is not None:
            self._config.routes.tick()
        is_awaited = any(held.is_awaited for held in self._shards.values())
        return min(wanted, RECOVERING_TICK_S) if is_awaited else wanted

    def _take_skips(self) -> None:
        """Pass on the requests of operators to the shards, if they have been read."""
        skips = self._skips.take()
        if skips is None:
            return
        for held in self._mine():
            held.allow_skips(skips.get(held.shard.shard, ShardSkips({}, set())))

    def seeks(self) -> dict[int, int]:
        """Shards that must be read from another offset than the next one; each is given once. Read nothing else of them
        before."""
        seeks = {number: held.seek for number, held in sorted(self._shards.items()) if held.seek is not None}
        for number in seeks:
            self._shards[number].seek = None
        return seeks

    # ---- state -------------------------------------------------------------------------------------------------------

    def applied(self) -> dict[int, int]:
        """The next WAL offset after the committed mark of each shard, also of shards that were released."""
        held = {number: held.shard.committed + 1 for number, held in self._shards.items() if held.shard.committed >= 0}
        return self._released | held

    def stopped(self) -> dict[int, Exception]:
        """Shards that are stopped because something cannot be applied or sent, with the reason; also while they try
        again."""
        stops = {number: held.shard.stopped_by for number, held in self._shards.items()}
        return {number: stop for number, stop in stops.items() if stop is not None}

    def waiting(self) -> dict[int, str]:
        """Shards that cannot be recovered now, with the reason."""
        return {number: held.waiting for number, held in self._shards.items() if held.waiting}

    def standby_ended(self) -> dict[int, str]:
        """Shards whose standby copies have ended, with the reason."""
        return {} if self._standby is None else self._standby.ended()

    def routes(self) -> Mapping[int, RoutesReport]:
        """What the routes did, by shard. Thread-safe."""
        return {} if self._config.routes is None else self._config.routes.statuses()

    def states(self) -> dict[int, ShardState]:
        """What each shard of this worker does."""
        return {number: held.shard.state for number, held in self._shards.items()}
