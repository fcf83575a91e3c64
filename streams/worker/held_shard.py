"""One shard that a worker has: its checkpoint or recovery in the background, and the offset from which it must be read
next.

A shard has at most one of the two under way, and no other call is made for it until that has ended.
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
from streams.reading.records import Record
from streams.worker.shard import ShardWorker
from streams.worker.shard_failures import KNOWN
from streams.worker.shard_standing import ShardState
from streams.worker.skips import ShardSkips

CHECKPOINT_WAIT_S = 1.0
"""How long new frames of a shard wait for its checkpoint under way. All other work of the worker waits too. After
that time the frames are left out, and read again after the checkpoint: a broker may take long to answer, and an agent
may never return. Checkpoints that began at the same time share this limit."""

RECOVERY_RETRY_S = 1.0
"""The pause before the next try of a recovery that failed because of Kafka."""


class ShardOwner(Enum):
    """Which worker has the shard, as far as this worker knows."""

    THIS = "this worker"
    UNKNOWN = "a rebalance has revoked it, and has not said whose it is now"
    OTHER = "another worker, so it is let go once nothing of it is under way"


@dataclass(frozen=True, slots=True)
class ShardTasks:
    """How the shards of a worker run their checkpoints and recoveries."""

    checkpointing: InBackground
    recovering: InBackground
    clock: Clock
    fenced_pause_s: float
    """How long a fenced shard waits for its revocation."""


class HeldShard:
    """A shard that the worker has open. The thread that drives the worker uses it."""

    def __init__(self, shard: ShardWorker, tasks: ShardTasks) -> None:
        self.shard = shard
        self.owner = ShardOwner.THIS
        self.seek: int | None = None
        """The WAL offset from which the shard must be read. Until the reader was told this, other records of the shard
        are ignored."""
        self.waiting = ""
        """The reason for which the shard cannot be recovered now; empty if it can."""
        self._tasks = tasks
        self._checkpoint: Future[bool] | None = None
        self._begun_at = 0.0
        """When the checkpoint under way began."""
        self._recovery: Future[int | Exception] | None = None
        self._is_late = False
        """Whether frames were left out because a checkpoint was under way."""
        self._kept_at: int | None = None
        """The committed WAL offset at the time when the shard came back without a recovery. Another worker may have had
        the shard in between."""
        self._retry_at: float | None = None
        """When to recover; None if no recovery is needed, or one is under way."""

    # ---- assignment and revocation
    # ------------------------------------------------------------------------------------

    def assign(self, *, mine: bool) -> None:
        """Note which worker a rebalance has given the shard to."""
        self.owner = ShardOwner.THIS if mine else ShardOwner.OTHER
        self._is_late = False
        self._kept_at = self.shard.committed if mine else None
        if not mine:
            self.drop_recovery()

    def resume(self) -> bool:
        """Continue where the shard was, if possible; returns whether it must recover first."""
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
        """Checkpoint the gathered frames, and do nothing more until the new owner is known; returns the checkpoint."""
        self.owner, self.seek, self._retry_at, self.waiting = ShardOwner.UNKNOWN, None, None, ""
        if self.is_idle():
            self._begin_checkpoint(now=True)
        return self._checkpoint

    def drop_recovery(self) -> None:
        """Drop a recovery that has not begun, because it would fence a later owner of the shard."""
        if self._recovery is not None and self._recovery.cancel():
            self._recovery = None

    def give_up(self) -> Future[int | Exception] | None:
        """Called when the worker stops: drop a recovery that has not begun, or end a running one early; returns the
        running one."""
        if self._recovery is not None:
            self.shard.give_up()
            self.drop_recovery()
        return self._recovery

    # ---- work --------------------------------------------------------------------------------------------------------

    def is_read(self) -> bool:
        """Whether records of the shard can be applied now. It waits for a checkpoint under way, up to the limit."""
        if self.owner is not ShardOwner.THIS or self._recovery is not None or self._is_late:
            return False
        if self._checkpoint is not None:
            left_s = self._begun_at + CHECKPOINT_WAIT_S - self._tasks.clock()
            if wait([self._checkpoint], max(0.0, left_s)).not_done:
                self._is_late = True
                return False
        self._finish_checkpoint()
        return self.seek is None and self._retry_at is None and self._recovery is None

    def take(self, records: Sequence[Record]) -> None:
        """Apply records, and checkpoint if that is due. Call it only if `is_read`."""
        self.seek = self.shard.take(records)
        self._checkpoint_if_due()

    def stop_unreadable(self, error: CorruptionError) -> None:
        """Stop, after a checkpoint of the gathered frames. Call it only if `is_read`."""
        self.shard.stop_unreadable(error)
        self._checkpoint_if_due()

    def allow_skips(self, skips: ShardSkips) -> None:
        """Pass on the requests of operators to the shard, unless its checkpoint is under way; the next reading of
        requests then comes soon enough."""
        if self._checkpoint is not None and not self._checkpoint.done():
            return
        self._finish_checkpoint()
        if self.shard.allow_skips(*skips) and self._recovery is None:
            self.recover()

    def tick(self, now: float) -> float | None:
        """Do the work that is due at this time; returns the seconds until a checkpoint is due, or None if none will
        be."""
        if not self.is_idle():
            return None
        if self.shard.wants_retry or (self._retry_at is not None and now >= self._retry_at):
            self.recover()
        else:
            self._checkpoint_if_due()
        return None if self._is_busy() else self.shard.due_in()

    # ---- state -------------------------------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether the shard waits for background work to end: it recovers, or frames were left out."""
        return self._recovery is not None or self._is_late

    @property
    def is_held_up(self) -> bool:
        """Whether a checkpoint or recovery is still running, so that the shard's copy is in use."""
        return any(future is not None and not future.done() for future in (self._checkpoint, self._recovery))

    @property
    def checkpoint(self) -> Future[bool] | None:
        """The checkpoint that is under way, or that has ended but was not handled yet; else None."""
        return self._checkpoint

    def is_idle(self) -> bool:
        """Handle a checkpoint or recovery that has ended; returns whether none is under way now."""
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
        """Do what must follow a checkpoint. A shard that this worker may have lost waits for `assign`."""
        if self.owner is not ShardOwner.THIS:
            return
        is_fenced = self.shard.state is ShardState.FENCED
        if is_fenced and self._kept_at != self.shard.committed:
            # another worker most likely got the shard in a rebalance of which this worker does not know yet
            self._retry_at = self._tasks.clock() + self._tasks.fenced_pause_s
        elif is_fenced or not done:
            # a shard that came back was fenced by the worker that had it between two rebalances; it is this worker's
            # again
            self.recover()

    def recover(self) -> None:
        """Begin a recovery. When it has succeeded, `seek` has the offset to read from."""
        self._retry_at = self._kept_at = None
        self._recovery = self._tasks.recovering(self._recovered)
        self.is_idle()

    def _recovered(self) -> int | Exception:
        """The WAL offset to read from, or the error that prevents the recovery. The shard has handled that error
        already."""
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
