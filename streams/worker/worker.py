"""The worker's shell: one class that Faust and the simulation both drive. The glue around it decides nothing.

    assigned / revoked     shards come and go
    frames                 WAL records of one shard, in order
    tick                   checkpoints that are due, repairs that were asked for, recoveries that wait
    seeks                  where the glue must read from now on

All calls block, and come from one thread. Checkpoints and recoveries may run beside them (`checkpointing`,
`recovering`), while frames of other shards are applied: nothing else is asked of their shard until they are over.

A shard that is revoked is kept until it is known whose it is now. One that comes back goes on where it was, without
fencing anybody: so it does what a worker does that has not heard of a successor yet, and whose checkpoints the broker
refuses if there was one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial

from journal.disk.ports import LocalStore
from journal.errors import CorruptionError, OperatingError
from journal.kafka.ports import Kafka
from journal.process.background import InBackground, at_once
from journal.process.clocks import Clock
from journal.v1.journal_pb2 import RoutesReport
from streams.reading.records import Prepared
from streams.worker.shard import ShardWorker
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_failures import KNOWN
from streams.worker.shard_standing import ShardState
from streams.worker.skips import ShardSkips, read_skips
from streams.worker.standby import StandbyCopies

log = logging.getLogger(__name__)

IDLE_TICK_S = 1.0
"""The longest pause between two ticks; also how often a stopped shard looks for a skip request."""

RECOVERING_TICK_S = 0.01
"""The same while a shard recovers: a node may wait for it at its gate."""

REVOKE_WAIT_S = 2.0
"""The last checkpoints before a rebalance may take so long: until all members have joined again, no shard moves. One
that ends later is refused by the broker, if its shard is another's by then."""

CHECKPOINT_WAIT_S = 1.0
"""How old a checkpoint may become while new frames of its shard wait for it, and with them all that this worker does.
Then they are left out, and read again when it is over: a broker may take long to answer, an agent may never return.
Checkpoints that began together use up this time together, however many of them are slow."""

END_WAIT_S = 10.0
"""How long a worker that ends waits for what is under way: until it has left its group, no shard of it moves."""

STANDBY_AFTER_S = 2.0
"""Shards that a rebalance took may come back at once: their copies are followed when it has settled."""


def _nothing() -> None: ...


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
        checkpointing: InBackground = at_once,
        recovering: InBackground = at_once,
        opening: InBackground = at_once,
        reading: InBackground = at_once,
        standby: StandbyCopies | None = None,
        require_place: Callable[[], None] = _nothing,
    ) -> None:
        """`stores` opens a shard's local store. `fenced_pause_s` is how long a fenced shard waits for being revoked.

        `opening` is waited for, so it must not be where recoveries take their turns. `reading` is where the control
        rows are read. `standby` keeps copies of the shards that are not this worker's.
        """
        self._config = config
        self._kafka = kafka
        self._stores = stores
        self._clock = clock
        self._wall_ms = wall_ms
        self._fenced_pause_s = fenced_pause_s
        self._checkpointing = checkpointing
        self._recovering = recovering
        self._opening = opening
        self._reading = reading
        self._standby = standby
        self._require_place = require_place
        self._moved_at = clock()
        self._shards: dict[int, ShardWorker] = {}
        self._mine: set[int] = set()
        self._revoked: set[int] = set()
        """Whose these are now is not known yet. A shard in neither set is let go once nothing of it is under way."""
        self._kept: dict[int, int] = {}
        """Mine again without a recovery, and committed up to here: another may have had them meanwhile."""
        self._checkpoints: dict[int, Future[bool]] = {}
        self._begun_at: dict[int, float] = {}
        """When those checkpoints began."""
        self._recoveries: dict[int, Future[int | Exception]] = {}
        self._late: set[int] = set()
        """Frames of these were left out, because of the checkpoint that is under way."""
        self._waiting: dict[int, str] = {}
        self._released: dict[int, int] = {}
        self._seeks: dict[int, int] = {}
        self._retry_at: dict[int, float] = {}
        self._skips: Future[dict[int, ShardSkips]] | None = None
        """What operators have asked to be skipped, while it is being read."""
        self._skips_read_at = clock()

    # ---- shards come and go ----------------------------------------------------------------------------------------

    def assigned(self, shards: Collection[int]) -> dict[int, int]:
        """Serve these shards and no others: the WAL offset to read each from that is ready; `seeks` tells the others'.

        One that cannot be recovered now is tried again.
        """
        self._moved_at = self._clock()
        self._mine, self._revoked = set(shards), set()
        self._late.clear()
        self._drop_recoveries(self._recoveries.keys() - self._mine)
        self._kept = {number: shard.committed for number, shard in self._shards.items() if number in self._mine}
        self._open(sorted(self._mine - self._shards.keys()))
        recovering = [self._resume(self._shards[number]) for number in sorted(self._mine)]
        if any(recovering):
            self._read_skips()
        self._release()
        return self.seeks()

    def _open(self, numbers: Sequence[int]) -> None:
        opening = [self._opening(partial(self._open_store, number)) for number in numbers]
        for number, store in zip(numbers, opening, strict=True):
            self._released.pop(number, None)
            self._shards[number] = ShardWorker(
                number, self._config, self._kafka, store.result(), clock=self._clock, wall_ms=self._wall_ms
            )

    def _open_store(self, number: int) -> LocalStore:
        return (self._standby.take(number) if self._standby else None) or self._stores(number)

    def _resume(self, shard: ShardWorker) -> bool:
        """Go on where the shard was, if it can; whether it recovers."""
        is_idle = self._is_idle(shard)
        if shard.shard in self._recoveries:
            return True
        offset = shard.next_offset
        if offset is not None:
            self._seeks[shard.shard] = offset
        elif is_idle:
            self._recover(shard)
        return offset is None

    def revoked(self, shards: Collection[int]) -> None:
        """Checkpoint what was gathered, and do nothing more until `assigned` says whose these shards are."""
        self._moved_at = self._clock()
        under_way: list[Future[bool]] = []
        for number in shards:
            self._mine.discard(number)
            self._seeks.pop(number, None)
            self._retry_at.pop(number, None)
            self._waiting.pop(number, None)
            shard = self._shards.get(number)
            if shard is None:
                continue
            self._revoked.add(number)
            if self._is_idle(shard):
                self._begin_checkpoint(shard, now=True)
            if number in self._checkpoints:
                under_way.append(self._checkpoints[number])
        wait(under_way, REVOKE_WAIT_S)

    def _release(self) -> None:
        """Let go of what is another's, and keep its local copy for the next time."""
        for number in self._shards.keys() - self._mine - self._revoked:
            shard = self._shards[number]
            if not self._is_idle(shard):
                continue
            if shard.committed >= 0:
                self._released[number] = shard.committed + 1
            shard.release()
            del self._shards[number]

    def stop(self) -> None:
        """A clean end: checkpoint at once, so that the next owner replays nothing. A shard that is held up is left as
        it is; `states` still names it."""
        self.revoked(list(self._shards))
        self._revoked.clear()
        wait(self._checkpoints.values(), END_WAIT_S)
        self._give_up_recoveries()
        if self._config.routes is not None:
            self._config.routes.close()
        self._release()
        if self._standby is not None:
            self._standby.close()

    def abandon(self) -> None:
        """The end behind an error: what goes on by itself ends. Shards are left as they are."""
        self._give_up_recoveries()

    def held_up(self) -> list[int]:
        """Shards of which something is still under way: their copies are in use until that is over."""
        under_way = self._checkpoints | self._recoveries
        return sorted(number for number, future in under_way.items() if not future.done())

    def _give_up_recoveries(self) -> None:
        """Those that have not begun are dropped, and the others end early."""
        for number in self._recoveries:
            self._shards[number].give_up()
        self._drop_recoveries(list(self._recoveries))
        wait(self._recoveries.values(), END_WAIT_S)

    def _drop_recoveries(self, numbers: Collection[int]) -> None:
        """Of these, those that have not begun: they would fence whoever has the shards by then."""
        for number in numbers:
            if self._recoveries[number].cancel():
                del self._recoveries[number]

    # ---- what there is to do ---------------------------------------------------------------------------------------

    def frames(self, shard: int, records: Sequence[Prepared]) -> None:
        """Apply records of one shard; checkpoints if they are due.

        Records of a shard that is not held, or that wants to be read from elsewhere, are ignored.
        """
        if not self._is_read(shard):
            return
        held = self._shards[shard]
        rest = held.take(records)
        if rest is not None:
            self._seeks[shard] = rest
        self._checkpoint(held)

    def unsorted(self) -> Collection[int]:
        """Shards that want records as they lie in the WAL."""
        return [number for number, shard in self._shards.items() if shard.wants_unsorted]

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        """Stop a shard whose WAL cannot be read on, with everything before that checkpointed."""
        if not self._is_read(shard):
            return
        held = self._shards[shard]
        held.stop_unreadable(error)
        self._checkpoint(held)

    def _is_read(self, number: int) -> bool:
        """Whether a shard is read on from where it was, once its checkpoint is over."""
        if number not in self._mine or number in self._recoveries or number in self._late:
            return False
        under_way = self._checkpoints.get(number)
        if under_way is not None:
            left_s = self._begun_at[number] + CHECKPOINT_WAIT_S - self._clock()
            if wait([under_way], max(0.0, left_s)).not_done:
                self._late.add(number)
                return False
        self._finish_checkpoint(self._shards[number])
        return not (number in self._seeks or number in self._retry_at or number in self._recoveries)

    def tick(self) -> float:
        """Do what time asks for; seconds until the next tick is wanted."""
        self._require_place()
        now = self._clock()
        if now - self._skips_read_at >= IDLE_TICK_S and ShardState.STOPPED in self.states().values():
            self._read_skips()
        self._take_skips()
        if self._standby is not None and now - self._moved_at >= STANDBY_AFTER_S:
            self._standby.follow(set(range(self._config.shards)) - set(self._shards))
        wanted = IDLE_TICK_S
        for number in sorted(self._mine):
            shard = self._shards[number]
            if not self._is_idle(shard):
                continue
            retry_at = self._retry_at.get(number)
            if shard.wants_retry or (retry_at is not None and now >= retry_at):
                self._recover(shard)
            else:
                self._checkpoint(shard)
            due = None if self._is_busy(number) else shard.due_in()
            if due is not None:
                wanted = min(wanted, due)
        self._release()
        if self._config.routes is not None:
            self._config.routes.tick()
        return min(wanted, RECOVERING_TICK_S) if self._recoveries or self._late else wanted

    def seeks(self) -> dict[int, int]:
        """Shards that must be read from another offset than the next, once each. Read nothing else of them before."""
        seeks, self._seeks = self._seeks, {}
        return seeks

    # ---- what there is to tell -------------------------------------------------------------------------------------

    def applied(self) -> dict[int, int]:
        """Per shard the next WAL offset after its committed mark; of one that was let go, that of its last one."""
        return self._released | {
            shard.shard: shard.committed + 1 for shard in self._shards.values() if shard.committed >= 0
        }

    def stopped(self) -> dict[int, Exception]:
        """Shards that stopped at what cannot be applied or sent, and why; also while they try again."""
        return {shard.shard: shard.stopped_by for shard in self._shards.values() if shard.stopped_by is not None}

    def waiting(self) -> dict[int, str]:
        """Shards that cannot be recovered now, and why."""
        return dict(self._waiting)

    def standby_ended(self) -> dict[int, str]:
        """Shards whose standby copies follow no more, and why."""
        return {} if self._standby is None else self._standby.ended()

    def routes(self) -> Mapping[int, RoutesReport]:
        """What the routes did, by shard. Thread-safe."""
        return {} if self._config.routes is None else self._config.routes.statuses()

    def states(self) -> dict[int, ShardState]:
        return {shard.shard: shard.state for shard in self._shards.values()}

    # ---- checkpoints and recoveries --------------------------------------------------------------------------------

    def _checkpoint(self, shard: ShardWorker) -> None:
        """Begin a checkpoint that is due."""
        if shard.shard in self._retry_at or shard.shard in self._recoveries:
            return
        if shard.due_in() == 0.0:
            self._begin_checkpoint(shard)
            self._is_idle(shard)
        else:
            self._settle(shard, shard.state is not ShardState.RECOVERING)

    def _begin_checkpoint(self, shard: ShardWorker, *, now: bool = False) -> None:
        self._begun_at[shard.shard] = self._clock()
        self._checkpoints[shard.shard] = self._checkpointing(partial(shard.checkpoint_if_due, now=now))

    def _is_busy(self, number: int) -> bool:
        return number in self._checkpoints or number in self._recoveries

    def _is_idle(self, shard: ShardWorker) -> bool:
        """Whether nothing of the shard is under way, once what is over has been settled."""
        number = shard.shard
        if number in self._checkpoints and self._checkpoints[number].done():
            self._finish_checkpoint(shard)
        if number in self._recoveries and self._recoveries[number].done():
            self._finish_recovery(shard)
        return not self._is_busy(number)

    def _finish_checkpoint(self, shard: ShardWorker) -> None:
        """Wait for the shard's checkpoint, if one is under way."""
        number = shard.shard
        future = self._checkpoints.pop(number, None)
        if future is None:
            return
        self._settle(shard, future.result())
        if number in self._late:
            self._late.discard(number)
            if number in self._mine and number not in self._recoveries and shard.next_offset is not None:
                self._seeks[number] = shard.next_offset

    def _settle(self, shard: ShardWorker, done: bool) -> None:
        """Do what the end of a checkpoint asks for. A shard that is not mine now waits for `assigned`."""
        number = shard.shard
        if number not in self._mine:
            return
        is_fenced = shard.state is ShardState.FENCED
        if is_fenced and self._kept.get(number) != shard.committed:
            # the owner that fenced this one most likely got the shard in a rebalance that has not reached us yet
            self._retry_at[number] = self._clock() + self._fenced_pause_s
        elif is_fenced or not done:
            # a kept one was fenced by whoever had it between two rebalances: it was mine again after that
            self._recover(shard)

    def _recover(self, shard: ShardWorker) -> None:
        """Begin to recover, which `seeks` tells."""
        self._retry_at.pop(shard.shard, None)
        self._kept.pop(shard.shard, None)
        self._recoveries[shard.shard] = self._recovering(partial(_recovered, shard))
        self._is_idle(shard)

    def _finish_recovery(self, shard: ShardWorker) -> None:
        number = shard.shard
        found = self._recoveries.pop(number).result()
        self._waiting.pop(number, None)
        if number not in self._mine:
            return
        if number in self._kept:
            self._kept[number] = shard.committed
        if isinstance(found, int):
            self._seeks[number] = found
        elif shard.state is not ShardState.STOPPED:
            self._waiting[number] = str(found)
            self._retry_at[number] = self._clock() + IDLE_TICK_S

    def _read_skips(self) -> None:
        """Begin to read what operators have asked to be skipped, unless that is under way."""
        self._skips_read_at = self._clock()
        if self._skips is None:
            config = self._config
            reading = partial(read_skips, self._kafka, config.journal, self._clock, config.request_timeout_s)
            self._skips = self._reading(reading)
        self._take_skips()

    def _take_skips(self) -> None:
        """Tell the shards what has been read."""
        if self._skips is None or not self._skips.done():
            return
        read, self._skips = self._skips, None
        try:
            skips = read.result()
        except OperatingError as error:
            log.warning("skip requests cannot be read yet: %s", error)
            return
        for number in sorted(self._mine):
            shard = self._shards[number]
            if number in self._checkpoints and not self._checkpoints[number].done():
                continue  # it does not stand still; if it stops, they are read again
            self._finish_checkpoint(shard)
            if shard.allow_skips(*skips.get(number, ShardSkips({}, set()))) and number not in self._recoveries:
                self._recover(shard)


def _recovered(shard: ShardWorker) -> int | Exception:
    """The WAL offset to read from, or the error that keeps the shard from recovering, which the shard has dealt with."""
    try:
        return shard.recover()
    except KNOWN as error:
        return error
