"""One shard in a worker's hands: the checkpoint or recovery that runs beside, and where it must be read from next.

At most one of the two is under way, and nothing else is asked of the shard until it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import Enum
from functools import partial

from journal.errors import CorruptionError
from journal.process.background import InBackground
from journal.process.clocks import Clock
from streams.reading.records import Prepared
from streams.worker.shard import ShardWorker
from streams.worker.shard_failures import KNOWN
from streams.worker.shard_standing import ShardState
from streams.worker.skips import ShardSkips

CHECKPOINT_WAIT_S = 1.0
"""How old a checkpoint may become while new frames of its shard wait for it, and with them all that this worker does.
Then they are left out, and read again when it is over: a broker may take long to answer, an agent may never return.
Checkpoints that began together use up this time together, however many of them are slow."""

RECOVERY_RETRY_S = 1.0
"""The pause before a recovery that Kafka did not allow is tried again."""


class ShardOwner(Enum):
    """The worker that has the shard, as far as this one has heard."""

    THIS = "this worker"
    UNKNOWN = "a rebalance has revoked it, and has not said whose it is now"
    OTHER = "another worker, so it is let go once nothing of it is under way"


@dataclass(frozen=True, slots=True)
class ShardTasks:
    """How the shards of a worker run what takes time."""

    checkpointing: InBackground
    recovering: InBackground
    clock: Clock
    fenced_pause_s: float
    """How long a fenced shard waits for being revoked."""


class HeldShard:
    """A shard that the worker has open. Used by the thread that drives the worker."""

    def __init__(self, shard: ShardWorker, tasks: ShardTasks) -> None:
        self.shard = shard
        self.owner = ShardOwner.THIS
        self.seek: int | None = None
        """The WAL offset from which the shard must be read; nothing else of it is applied before that is told."""
        self.waiting = ""
        """Why the shard cannot be recovered now; empty: it can."""
        self._tasks = tasks
        self._checkpoint: Future[bool] | None = None
        self._begun_at = 0.0
        """When that checkpoint began."""
        self._recovery: Future[int | Exception] | None = None
        self._is_late = False
        """Whether frames were left out, because of the checkpoint that is under way."""
        self._kept_at: int | None = None
        """The WAL offset that was committed as the shard came back without a recovery: another worker may have had it
        meanwhile."""
        self._retry_at: float | None = None
        """When to recover; None: there is no need to, or it is under way."""

    # ---- the shard comes and goes ----------------------------------------------------------------------------------

    def assign(self, *, mine: bool) -> None:
        """A rebalance has said whose the shard is."""
        self.owner = ShardOwner.THIS if mine else ShardOwner.OTHER
        self._is_late = False
        self._kept_at = self.shard.committed if mine else None
        if not mine:
            self.drop_recovery()

    def resume(self) -> bool:
        """Go on where the shard was, if it can; whether it recovers."""
        is_idle = self.is_idle()
        if self._recovery is not None:
            return True
        offset = self.shard.next_offset
        if offset is not None:
            self.seek = offset
        elif is_idle:
            self.recover()
        return offset is None

    def revoke(self) -> Future[bool] | None:
        """Checkpoint what was gathered, and do nothing more until it is known whose the shard is; that checkpoint."""
        self.owner, self.seek, self._retry_at, self.waiting = ShardOwner.UNKNOWN, None, None, ""
        if self.is_idle():
            self._begin_checkpoint(now=True)
        return self._checkpoint

    def drop_recovery(self) -> None:
        """Drop a recovery that has not begun: it would fence whoever has the shard by then."""
        if self._recovery is not None and self._recovery.cancel():
            self._recovery = None

    def give_up(self) -> Future[int | Exception] | None:
        """The worker stops: drop a recovery that has not begun, and end another one early; that one."""
        if self._recovery is not None:
            self.shard.give_up()
            self.drop_recovery()
        return self._recovery

    # ---- what there is to do ---------------------------------------------------------------------------------------

    def is_read(self) -> bool:
        """Whether the shard is read on from where it was, once its checkpoint is over."""
        if self.owner is not ShardOwner.THIS or self._recovery is not None or self._is_late:
            return False
        if self._checkpoint is not None:
            left_s = self._begun_at + CHECKPOINT_WAIT_S - self._tasks.clock()
            if wait([self._checkpoint], max(0.0, left_s)).not_done:
                self._is_late = True
                return False
        self._finish_checkpoint()
        return self.seek is None and self._retry_at is None and self._recovery is None

    def take(self, records: Sequence[Prepared]) -> None:
        """Apply records, and checkpoint if that is due. The shard is read."""
        self.seek = self.shard.take(records)
        self._checkpoint_if_due()

    def stop_unreadable(self, error: CorruptionError) -> None:
        """Stop behind a checkpoint of what was gathered. The shard is read."""
        self.shard.stop_unreadable(error)
        self._checkpoint_if_due()

    def allow_skips(self, skips: ShardSkips) -> None:
        """Give the shard what operators have asked for, unless its checkpoint is under way. If that stops it, the
        requests are read again."""
        if self._checkpoint is not None and not self._checkpoint.done():
            return
        self._finish_checkpoint()
        if self.shard.allow_skips(*skips) and self._recovery is None:
            self.recover()

    def tick(self, now: float) -> float | None:
        """Do what time asks for; seconds until a checkpoint is due, None if none will be."""
        if not self.is_idle():
            return None
        if self.shard.wants_retry or (self._retry_at is not None and now >= self._retry_at):
            self.recover()
        else:
            self._checkpoint_if_due()
        return None if self._is_busy() else self.shard.due_in()

    # ---- what there is to tell -------------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether the shard is to go on as soon as what is under way is over: it recovers, or frames were left out."""
        return self._recovery is not None or self._is_late

    @property
    def is_held_up(self) -> bool:
        """Whether something of the shard is still under way: its copy is in use until that is over."""
        return any(future is not None and not future.done() for future in (self._checkpoint, self._recovery))

    @property
    def checkpoint(self) -> Future[bool] | None:
        """The checkpoint that is under way, or that has ended and whose result was not handled yet; else None."""
        return self._checkpoint

    def is_idle(self) -> bool:
        """Whether nothing of the shard is under way, once what is over has been settled."""
        if self._checkpoint is not None and self._checkpoint.done():
            self._finish_checkpoint()
        if self._recovery is not None and self._recovery.done():
            self._finish_recovery(self._recovery)
        return not self._is_busy()

    def _is_busy(self) -> bool:
        return self._checkpoint is not None or self._recovery is not None

    # ---- checkpoints and recoveries --------------------------------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        if self._retry_at is not None or self._recovery is not None:
            return
        if self.shard.due_in() == 0.0:
            self._begin_checkpoint()
            self.is_idle()
        else:
            self._settle(self.shard.state is not ShardState.RECOVERING)

    def _begin_checkpoint(self, *, now: bool = False) -> None:
        self._begun_at = self._tasks.clock()
        self._checkpoint = self._tasks.checkpointing(partial(self.shard.checkpoint_if_due, now=now))

    def _finish_checkpoint(self) -> None:
        """Wait for the shard's checkpoint, if one is under way."""
        future, self._checkpoint = self._checkpoint, None
        if future is None:
            return
        self._settle(future.result())
        if self._is_late:
            self._is_late = False
            if self.owner is ShardOwner.THIS and self._recovery is None and self.shard.next_offset is not None:
                self.seek = self.shard.next_offset

    def _settle(self, done: bool) -> None:
        """Do what the end of a checkpoint asks for. A shard that is not this worker's now waits for `assign`."""
        if self.owner is not ShardOwner.THIS:
            return
        is_fenced = self.shard.state is ShardState.FENCED
        if is_fenced and self._kept_at != self.shard.committed:
            # the owner that fenced this one most likely got the shard in a rebalance that has not reached us yet
            self._retry_at = self._tasks.clock() + self._tasks.fenced_pause_s
        elif is_fenced or not done:
            # a kept one was fenced by whoever had it between two rebalances: it was ours again after that
            self.recover()

    def recover(self) -> None:
        """Begin to recover; `seek` tells when that has ended well."""
        self._retry_at = self._kept_at = None
        self._recovery = self._tasks.recovering(self._recovered)
        self.is_idle()

    def _recovered(self) -> int | Exception:
        """The WAL offset to read from, or the error that keeps the shard from recovering, which has dealt with it."""
        try:
            return self.shard.recover()
        except KNOWN as error:
            return error

    def _finish_recovery(self, recovery: Future[int | Exception]) -> None:
        self._recovery, found = None, recovery.result()
        self.waiting = ""
        if self.owner is not ShardOwner.THIS:
            return
        if self._kept_at is not None:
            self._kept_at = self.shard.committed
        if isinstance(found, int):
            self.seek = found
        elif self.shard.state is not ShardState.STOPPED:
            self.waiting = str(found)
            self._retry_at = self._tasks.clock() + RECOVERY_RETRY_S
