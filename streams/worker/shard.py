"""One shard's checkpoints: frames in, rows and a mark out, for each checkpoint in one Kafka transaction, and then in
the local copy.

    recover      fence the previous owner, read the table, make the fold         shard_table, shard_checkpoint
    take         frames into the fold                                            shard_frames
    checkpoint   rows and mark in one transaction, then the local copy           shard_checkpoint
    an error     what it means, and what the shard does about it                 shard_failures
    its state    running, recovering, stopped by what                            shard_standing

After an assignment and after every unknown outcome, all state in memory is dropped: `recover` fences the previous
owner, reads the table partition to its end, and gives the WAL offset to read from. A frame that cannot be right
(garbage, a gap) stops the shard after all frames before it are checkpointed, until an operator has it skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

from journal.disk.ports import LocalStore
from journal.errors import CorruptionError, FatalProducerError, OperatingError, RouteStopError
from journal.fold.engine import Fold
from journal.fold.rows import Change
from journal.kafka.ports import Kafka
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.table.age import note_checkpoint
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import SkipRequest
from streams.reading.records import Record
from streams.routes.outgoing import ROUTED_KINDS
from streams.worker.shard_agents import ShardAgents
from streams.worker.shard_checkpoint import CheckpointSender, Committed
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_failures import KNOWN, Remedy, ShardStep, meaning_of
from streams.worker.shard_frames import ShardFrames
from streams.worker.shard_standing import ShardStanding, ShardState, Stop
from streams.worker.shard_table import ShardTable

log = logging.getLogger(__name__)

FAILURES_ALONE = 2
"""How many times the checkpoint of a single group must have failed before the worker reports it, because any checkpoint
may fail once."""

RECENT_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of rows of updates that one worker with all shards remembers; each shard has an equal share."""


class ShardWorker:
    """The worker's part for one shard. Not thread-safe: the thread that drives the worker owns it.

    Its many attributes are its parts and collaborators; the state that changes with each frame is in the parts.
    """

    def __init__(
        self, shard: int, config: ShardConfig, kafka: Kafka, store: LocalStore, *, clock: Clock, wall_ms: Clock
    ) -> None:
        self.shard = shard
        self._config = config
        self._store = store
        self._clock = clock
        self._wall_ms = wall_ms
        self._outgoing = None if config.routes is None else config.routes.outgoing(shard)
        counts = None if self._outgoing is None else self._outgoing.counts
        self._standing = ShardStanding(shard, clock, counts)
        self._table = ShardTable(shard, config, kafka, store, clock=clock, wall_ms=wall_ms)
        self._agents = ShardAgents(shard, config.tell, clock)
        self._sender = CheckpointSender(shard, config, kafka, store, self._table, self._agents, self._outgoing)
        self._frames = ShardFrames(shard, config, clock)
        self._committed = -1
        self._not_beyond: tuple[int, RouteStopError] | None = None
        """The WAL offset up to which frames may be applied, and the error that stops the shard there."""
        self._stopping: Callable[[], None] | None = None
        """The function that stops the shard after the checkpoint of the gathered frames. No more frames are applied
        before that."""

    # ---- recovery --------------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Fence the previous owner, and bring the local copy up to the table's end; returns the WAL offset to read
        from.

        Raises OperatingError if Kafka does not allow it now, CorruptionError if WAL and table do not fit together, and
        ClosedError after `give_up`.
        """
        if self.state is ShardState.STOPPED:
            self._not_beyond = None
            if self._outgoing is not None:
                self._outgoing.targets.try_again()
        self._standing.recover()
        try:
            self._agents.require_pause_over()
            self._sender.close()
            self._frames.fold = None
            return self._recover()
        except KNOWN as error:
            self._meet(ShardStep.RECOVERY, error)
            raise

    def _recover(self) -> int:
        config = self._config
        self._table.mend()
        self._sender.open()
        mark = self._table.read()
        self._table.require_wal_behind(mark)
        fold = Fold(
            mark,
            self._store,
            updates_row_bytes_max=config.updates_row_bytes_max,
            tell=config.tell is not None,
            tell_added=frozenset() if self._outgoing is None else ROUTED_KINDS,
            highest=self._store.highest_record(),
            recent_bytes_max=RECENT_BYTES_MAX // config.shards,
        )
        self._frames.begin(fold)
        self._committed, self._stopping = mark.offset, None
        self._standing.run(mark.offset)
        return mark.offset + 1

    def give_up(self) -> None:
        """End a running recovery soon, because the worker stops. Thread-safe."""
        self._table.give_up()

    # ---- frames ----------------------------------------------------------------------------------------------------

    def take(self, records: Sequence[Record]) -> int | None:
        """Apply frames; the checkpoint follows later. A shard that does not run ignores them.

        Returns None, or the WAL offset from which the rest must be read again, because the checkpoint is full and due.
        """
        frames = self._frames
        fold = frames.fold
        if self.state is not ShardState.RUNNING or fold is None or self._stopping is not None:
            return None
        for offset, timestamp, value in records:
            if offset <= fold.mark.offset:
                continue
            if fold.at_group_boundary and frames.is_full(fold):
                return offset
            if self._not_beyond is not None and offset > self._not_beyond[0]:
                self._stop_behind_checkpoint(partial(self._standing.stop_for_route, self._not_beyond[1]))
                return None
            try:
                frames.apply(fold, offset, timestamp, value)
            except KNOWN as error:
                self._meet(ShardStep.FRAME, error, offset=offset)
                return None
        return None

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def due_in(self) -> float | None:
        """Seconds until a checkpoint is due; None if no frames are gathered or a group is incomplete."""
        fold, gathered = self._frames.fold, self._frames.gathered
        if self.state is not ShardState.RUNNING or gathered.since is None or fold is None:
            return None
        if not fold.at_group_boundary:
            return None
        if gathered.is_cut_off or self._stopping is not None or self._frames.is_full(fold):
            return 0.0
        return max(0.0, gathered.since + self._config.checkpoint_interval_s - self._clock())

    def checkpoint_if_due(self, *, now: bool = False) -> bool:
        """Checkpoint if it is time, or with `now` if any frame is gathered. False if the shard must recover."""
        due, fold = self.due_in(), self._frames.fold
        if fold is not None and due is not None and (now or due <= 0):
            self._checkpoint(fold)
            stop, self._stopping = self._stopping, None
            if stop is not None and self.state is ShardState.RUNNING:
                stop()
        return self.state is not ShardState.RECOVERING

    def _checkpoint(self, fold: Fold) -> None:
        """Make a checkpoint: one Kafka transaction with all row changes and the mark last, then one local batch."""
        changes: Sequence[Change] = ()
        packed = cache(lambda: self._store.packed(changes))
        try:
            changes = fold.changes()
            done = self._sender.send(
                fold,
                self._frames.gathered.facts,
                changes,
                packed,
                # if a route stops the shard again and again, rows sent before would be sent in vain each time
                routes_first=isinstance(self.stopped_by, RouteStopError),
                wants_reports=self._frames.size.wants_reports,
            )
            self._note_committed(fold, done)
            packed()(note_checkpoint(self.shard, done.mark_at + 1, fold.mark.timestamp))
        except KNOWN as error:
            self._meet(ShardStep.CHECKPOINT, error, rows=len(changes))
            return
        finally:
            # an error that is kept would keep the batch in memory, and the batch holds the directory's lock
            packed.cache_clear()
        self._frames.checkpointed(fold)
        if not done.is_clean:
            self._standing.become(ShardState.RECOVERING)

    def _note_committed(self, fold: Fold, done: Committed) -> None:
        self._committed = fold.mark.offset
        self._frames.size.succeeded(self._frames.gathered_bytes(fold))
        self._agents.committed()
        if self._outgoing is not None:
            self._outgoing.counts.committed(done.routed, self._committed, int(self._wall_ms()))
        if self.stopped_by is not None:
            self._standing.passed(self._committed)

    # ---- errors ----------------------------------------------------------------------------------------------------

    def _meet(self, step: ShardStep, error: Any, *, offset: int = -1, rows: int = 0) -> None:
        """Do what the table of errors (`shard_failures`) says. `offset` is the WAL offset of a frame; `rows` is the
        number of rows of a checkpoint.

        Raises `error` itself if the table does not know it, because it is then a fault of the program.
        """
        meaning = meaning_of(step, error)
        if meaning is None:
            raise error
        meaning.log(self.shard, error)
        remedy = meaning.remedy
        if remedy is Remedy.FIND_REFUSED:
            remedy = Remedy.ASK_TARGETS if self._is_refused(error) else Remedy.TAKE_LESS
        match remedy:
            case Remedy.STOP_AT_FRAME:
                self._stop_behind_checkpoint(partial(self._stop_at_frame, offset, error))
                return
            case Remedy.STOP_FOR_A_WHILE:
                self._standing.stop_for_a_while(error)
                return
            case Remedy.WAIT_TO_BE_REVOKED:
                self._ask_targets()
                self._standing.become(ShardState.FENCED)
                return
            case Remedy.BUILD_COPY:
                self._table.is_damaged = True
            case Remedy.STOP_BEFORE_GROUP:
                self._go_back_before(error)
            case Remedy.TELL_ALONE:
                self._tell_alone()
            case Remedy.ASK_TARGETS:
                self._ask_targets()
            case Remedy.TAKE_LESS:
                self._take_less(error, rows)
        self._standing.become(ShardState.RECOVERING)

    def _stop_behind_checkpoint(self, stop: Callable[[], None]) -> None:
        """Stop after a checkpoint of the gathered frames, which is due now; at once if no checkpoint is possible."""
        if self.due_in() is None:
            stop()
        else:
            self._stopping = stop

    def _stop_at_frame(self, offset: int, error: CorruptionError) -> None:
        name = self._config.journal
        placed = type(error)(error.reason, topic=wal_topic(name), partition=self.shard, offset=offset)
        self._standing.stop_at_frame(offset, placed)
        log.error("look at the record, then: %s", command("repair skip", self.shard, offset, journal=name))

    def _go_back_before(self, error: RouteStopError) -> None:
        """Prepare to apply frames again from the last mark, up to the group before the frame that stops the shard. The
        fold has no undo, so it must be made anew."""
        before = [offset for offset in self._frames.gathered.group_ends if offset < error.offset]
        self._not_beyond = (before[-1] if before else self._committed, error)

    def _tell_alone(self) -> None:
        self._agents.failed()
        if self._frames.fold is not None:
            self._frames.size.take_one_group_to(self._frames.fold.mark.offset)

    def _is_refused(self, error: FatalProducerError) -> bool:
        """Whether the checkpoint failed because the broker refuses a record of a route or an agent."""
        topic = error.refused_topic
        if not topic:
            return False
        if self._outgoing is not None and self._outgoing.blame(topic, str(error)):
            return True
        return self._agents.blame(topic, str(error))

    def _ask_targets(self) -> None:
        """Note that the checkpoint failed for a reason other than its size, and that the targets must be looked at."""
        self._frames.size.failed_of_any_size()
        if self._outgoing is not None:
            self._outgoing.targets.suspect()

    def _take_less(self, error: OperatingError, rows: int) -> None:
        """Note that the checkpoint may have failed because of its size: the next one is smaller. If it cannot be
        smaller, this is reported."""
        fold, size, outgoing = self._frames.fold, self._frames.size, self._outgoing
        assert fold is not None
        size.failed(self._frames.gathered_bytes(fold), len(self._frames.gathered.group_ends))
        if outgoing is None:
            return
        outgoing.targets.suspect()
        if size.failures_alone >= FAILURES_ALONE:
            stop = outgoing.too_much(fold.added(), fold.mark.offset, rows, size.failures_alone, error)
            log.error("%s", stop)
            self._standing.say(stop)

    # ---- stops and their end
    # ------------------------------------------------------------------------------------------

    @property
    def state(self) -> ShardState:
        """What the shard does now."""
        return self._standing.state

    @property
    def stopped_by(self) -> Stop | None:
        """The error that stopped the shard. It stays while the shard tries again after a stop by a route."""
        return self._standing.stopped_by

    def stop_unreadable(self, error: CorruptionError) -> None:
        """Stop for a while, after a checkpoint of the frames that could be read."""
        if self.state is ShardState.RUNNING:
            self._stop_behind_checkpoint(partial(self._standing.stop_for_a_while, error))

    def allow_skips(self, requests: Mapping[int, SkipRequest], passes: Collection[int] = ()) -> bool:
        """Take operators' requests: frames to skip, and WAL offsets at which messages that no route can send are left
        out. Returns whether one of them ends the present stop, so that the shard should recover now."""
        self._frames.skips, self._sender.passes = requests, passes
        return self._standing.is_mended_by(requests, passes)

    @property
    def wants_retry(self) -> bool:
        """Whether it is time to try again after a stop."""
        return self._standing.wants_retry

    # ---- progress, and the end -------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """The WAL offset of the last committed mark. The group offset behind it may be committed."""
        return self._committed

    @property
    def next_offset(self) -> int | None:
        """The WAL offset after the last applied record, even if that is not checkpointed. It is None if the shard must
        recover first."""
        fold = self._frames.fold
        return fold.mark.offset + 1 if self.state is ShardState.RUNNING and fold is not None else None

    def release(self) -> None:
        """Release the shard. Its local copy stays for the next time."""
        self._standing.become(ShardState.RELEASED)
        if self._config.routes is not None:
            self._config.routes.forget(self.shard)
        self._agents.release()
        self._sender.close()
        self._store.close()
