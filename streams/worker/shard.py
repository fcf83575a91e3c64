"""One shard's checkpoints: frames in, rows and a mark out, in one Kafka transaction each, and then the local copy.

After an assignment and after every outcome that is not known, nothing held in memory counts: `recover` fences the
previous owner, reads the table partition to its end, and says where to read the WAL from. A frame that the journal
cannot mean (garbage, a gap) stops the shard, with everything before it checkpointed, until an operator has it skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from itertools import chain

from journal.disk.ports import LocalStore
from journal.errors import (
    AgentError,
    CorruptionError,
    DeadlineError,
    FatalProducerError,
    FrameError,
    LocalDamageError,
    LocalStorageError,
    OperatingError,
    RouteStopError,
    StaleReadError,
)
from journal.fold.engine import Fold
from journal.fold.rows import Change
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from journal.limits import SKIPPED_REASON_CHARACTERS_MAX
from journal.process.clocks import Clock
from journal.table.age import note_checkpoint
from journal.topics.names import table_topic, wal_topic, worker_id
from journal.v1.journal_pb2 import Frame, Mark, Skipped, SkipRequest
from journal.wal.portion import Portion
from journal.wire.frames import decode_frame, nonce_of
from journal.words import shortened
from streams.agents.facts import AGENT_RETRY_S, FrameFacts
from streams.reading.records import Prepared
from streams.routes.counts import Checkpointed
from streams.routes.outgoing import ROUTED_KINDS, OutgrownError
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_table import ShardTable

log = logging.getLogger(__name__)

ROUTE_RETRY_S = 10.0
"""How often a shard that a route stopped for want of its topic tries again."""

UNREADABLE_RETRY_S = 10.0
"""The same for a shard whose WAL or table could not be read: another replica may have whole what is damaged in one."""

FAILURES_ALONE = 2
"""So many checkpoints of one group must have failed before that is said: one may meet what anything may."""

RECENT_BYTES_MAX = 128 * 1024 * 1024
"""Of rows of updates that a worker remembers which has all shards: each has its part."""


class ShardState(Enum):
    """What a shard's worker does. `_NEXT` has the arrows."""

    RECOVERING = "recovering"
    RUNNING = "running"
    STOPPED = "stopped"  # on a frame that cannot be applied
    FENCED = "fenced"  # another worker initialised the shard's transactional id
    RELEASED = "released"


_NEXT = {
    ShardState.RECOVERING: {ShardState.RUNNING, ShardState.STOPPED, ShardState.RELEASED},
    ShardState.RUNNING: {ShardState.RECOVERING, ShardState.STOPPED, ShardState.FENCED, ShardState.RELEASED},
    ShardState.STOPPED: {ShardState.RECOVERING, ShardState.RELEASED},
    ShardState.FENCED: {ShardState.RECOVERING, ShardState.RELEASED},
    ShardState.RELEASED: set(),
}


class ShardWorker:
    """The worker's part for one shard. Not thread-safe: the thread that drives the worker owns it."""

    def __init__(
        self, shard: int, config: ShardConfig, kafka: Kafka, store: LocalStore, *, clock: Clock, wall_ms: Clock
    ) -> None:
        self.shard = shard
        self.state = ShardState.RECOVERING
        self.stopped_by: CorruptionError | RouteStopError | None = None
        """A route's stop stays until its frame is checkpointed: till then the shard may only be trying again."""
        self._bad_frame_at: int | None = None
        self._config = config
        self._kafka = kafka
        self._store = store
        self._clock = clock
        self._wall_ms = wall_ms
        self._table = ShardTable(shard, config, kafka, store, clock=clock, wall_ms=wall_ms)
        self._producer: TransactionalProducer | None = None
        self._fold: Fold | None = None
        self._skips: dict[int, SkipRequest] = {}
        self._gathered_bytes = 0
        self._gathered_since: float | None = None
        self._cut_off = False
        self._committed = -1
        self._damaged = False
        """The local copy cannot be read: the next recovery builds it anew."""
        self._frames: dict[int, FrameFacts] = {}
        """Of the frames gathered, for agents."""
        self._agent_raised_at: float | None = None
        self._alone_to = -1
        """Up to this WAL offset agents are told of one group a checkpoint: one failed at more, or took too long."""
        self._outgoing = None if config.routes is None else config.routes.outgoing(shard)
        self._tells = config.tell is not None or self._outgoing is not None
        self._failures = 0
        """Of checkpoints, in a row: every other one behind a failure asks for the fate of every record, to learn what
        is refused."""
        self._portion = Portion(config.checkpoint_bytes_max)
        """Of the WAL, and of what outcomes there settle, in one checkpoint."""
        self._failures_alone = 0
        """The last so many of them were of one group, and nothing explains them."""
        self._passes: Collection[int] = ()
        """WAL offsets at which an operator has left out what no route can send."""
        self._group_ends: list[int] = []
        """Of the frames gathered, those that were their group's last in the shard."""
        self._not_beyond: tuple[int, RouteStopError] | None = None
        """The WAL offset up to which frames are applied, because of what stops the shard then."""
        self._retry_at: float | None = None
        self._stopping: Callable[[], None] | None = None
        """Stops the shard, when what was gathered before is checkpointed; till then nothing more is applied."""

    def _become(self, state: ShardState) -> None:
        if state is not self.state and state not in _NEXT[self.state]:
            raise AssertionError(f"shard {self.shard}: {self.state} does not become {state}")
        self.state = state

    # ---- recovery --------------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Fence the previous owner, bring the local copy up to the table's end; the WAL offset to read from.

        Raises OperatingError when Kafka does not allow it now, CorruptionError when the topics do not fit together.
        """
        if self.state is ShardState.STOPPED:
            self._not_beyond = None
            if self._outgoing is not None:
                self._outgoing.targets.try_again()
        self._become(ShardState.RECOVERING)
        self._retry_at = None
        if self._agent_raised_at is not None and self._clock() - self._agent_raised_at < AGENT_RETRY_S:
            raise DeadlineError(f"an agent failed; it is told again after {AGENT_RETRY_S:g} s")
        self._drop_producer()
        self._fold = None
        if self._damaged:
            self._store.clear()
            self._damaged = False
        try:
            return self._recover()
        except LocalDamageError as error:
            self._note_disk(error)
            raise

    def _note_disk(self, error: LocalStorageError) -> None:
        """A copy that cannot be read or written now is read to the table's end again; a damaged one is built anew."""
        if isinstance(error, LocalDamageError):
            log.warning("shard %d: the local copy is damaged, and will be built anew: %s", self.shard, error)
            self._damaged = True
        else:
            log.error("shard %d: %s", self.shard, error)
        self._become(ShardState.RECOVERING)

    def _recover(self) -> int:
        config = self._config
        producer = self._new_producer()
        self._producer = producer
        producer.init(config.request_timeout_s)
        mark = self._read_table()
        self._table.require_wal_behind(mark)
        highest = self._store.highest_record()
        self._fold = Fold(
            mark,
            self._store,
            updates_row_bytes_max=config.updates_row_bytes_max,
            tell=config.tell is not None,
            tell_added=frozenset() if self._outgoing is None else ROUTED_KINDS,
            highest=highest,
            recent_bytes_max=RECENT_BYTES_MAX // config.shards,
        )
        self._committed = mark.offset
        self._clear_gathered()
        self._bad_frame_at = None
        self._stopping = None
        self._go_on()
        self._become(ShardState.RUNNING)
        return mark.offset + 1

    def _new_producer(self) -> TransactionalProducer:
        config, name = self._config, worker_id(self._config.journal, self.shard)
        if config.routes is None or self._outgoing is None:
            return self._kafka.transactional_producer(name)
        return config.routes.producer(name, self._outgoing.prepare())

    def _read_table(self) -> Mark:
        return self._table.read()

    def give_up(self) -> None:
        """End a recovery that is under way soon: the worker stops. Thread-safe."""
        self._table.give_up()

    # ---- frames ----------------------------------------------------------------------------------------------------

    @property
    def wants_unsorted(self) -> bool:
        """Whether frames are to come as they lie in the WAL: operations are told, or one of them is to be skipped."""
        return self._tells or any(offset > self._committed for offset in self._skips)

    def take(self, records: Sequence[Prepared]) -> int | None:
        """Apply frames; the checkpoint comes later. Ignored unless running.

        If a checkpoint takes no more, it is due, and the rest must come again, as it must where frames are sorted and
        are not to be: the offset from which on.
        """
        fold = self._fold
        if self.state is not ShardState.RUNNING or fold is None or self._stopping is not None:
            return None
        for offset, timestamp, value in records:
            if offset <= fold.mark.offset:
                continue
            if fold.at_group_boundary and self._is_full(fold):
                return offset
            if self._not_beyond is not None and offset > self._not_beyond[0]:
                self._stop_behind_checkpoint(partial(self._stop_for_route, self._not_beyond[1]))
                return None
            if isinstance(value, SortedFrame) and self.wants_unsorted:
                return offset
            try:
                self._apply(fold, offset, timestamp, value)
            except CorruptionError as error:
                self._stop_behind_checkpoint(partial(self._stop_at, offset, error))
                return None
            except LocalStorageError as error:
                self._note_disk(error)
                return None
            self._gathered_bytes += value.bytes_in_wal if isinstance(value, SortedFrame) else len(value)
            if self._gathered_since is None:
                self._gathered_since = self._clock()
        return None

    def _is_full(self, fold: Fold) -> bool:
        """What outcomes settle counts too: a few bytes of frames may settle more than a checkpoint takes."""
        if self._group_ends and self._group_ends[0] <= self._alone_to:
            return True
        return self._taken_bytes(fold) >= self._portion.bytes

    def _taken_bytes(self, fold: Fold) -> int:
        """Of the checkpoint that gathers."""
        return self._gathered_bytes + fold.settled_bytes

    def _apply(self, fold: Fold, offset: int, timestamp: int, value: bytes | SortedFrame) -> None:
        if isinstance(value, bytes):
            if offset in self._skips:
                self._skip(fold, offset, timestamp, value)
                return
            if self._tells:
                self._apply_told(fold, offset, timestamp, value)
                return
            value = sort_frame(value, offset, self._config.journal_uuid, self.shard, self._config.shards)
        fold.apply(offset, timestamp, value)
        self._cut_off |= value.nonce != b""

    def _apply_told(self, fold: Fold, offset: int, timestamp: int, value: bytes) -> None:
        """Agents and routes are told of operations in their order."""
        frame = decode_frame(value, self._config.journal_uuid, self.shard, self._config.shards)
        fold.apply(offset, timestamp, frame)
        self._frames[offset] = FrameFacts(frame.epoch, frame.node, frame.group, timestamp)
        if fold.at_group_boundary:
            self._group_ends.append(offset)
        self._cut_off |= nonce_of(frame) != b""

    def _skip(self, fold: Fold, offset: int, timestamp: int, value: bytes) -> None:
        request = self._skips[offset]
        try:
            frame: Frame | None = decode_frame(value, self._config.journal_uuid, self.shard, self._config.shards)
            reason = "it parses as a frame; skipped all the same"
        except FrameError as error:
            frame, reason = None, error.reason
        log.warning("shard %d: skipped offset %d for %s: %s", self.shard, offset, request.operator, reason)
        row = Skipped(
            shard=self.shard,
            offset=offset,
            raw=value,
            reason=shortened(reason, SKIPPED_REASON_CHARACTERS_MAX),
            operator=request.operator,
            timestamp=request.timestamp,
        )
        fold.skip(row, timestamp, frame)

    def _stop_behind_checkpoint(self, stop: Callable[[], None]) -> None:
        """Stop once what came before is checkpointed, which is due now; at once if nothing did that can be."""
        if self.due_in() is None:
            stop()
        else:
            self._stopping = stop

    def _stop_at(self, offset: int, error: CorruptionError) -> None:
        self._bad_frame_at = offset
        topic = wal_topic(self._config.journal)
        self.stop_for(type(error)(error.reason, topic=topic, partition=self.shard, offset=offset))
        name = self._config.journal
        log.error("look at the record, then: kafka-journal repair skip -j %s %d %d", name, self.shard, offset)

    def _stop_for_route(self, error: RouteStopError) -> None:
        """What came before the group of the frame that stops the shard is applied."""
        self._retry_at = self._clock() + ROUTE_RETRY_S if error.retried else None
        self.stop_for(error)

    def stop_unreadable(self, error: CorruptionError) -> None:
        """Stop for a while, once what could be read is checkpointed."""
        if self.state is ShardState.RUNNING:
            self._stop_behind_checkpoint(partial(self.stop_for_a_while, error))

    def stop_for_a_while(self, error: CorruptionError) -> None:
        """What cannot be read now may be whole in another replica, or be mended by an operator."""
        self._retry_at = self._clock() + UNREADABLE_RETRY_S
        self.stop_for(error)

    def stop_for(self, error: CorruptionError | RouteStopError) -> None:
        """Apply nothing more until an operator has mended what `error` says."""
        self._become(ShardState.STOPPED)
        self._stands(error)
        log.error("shard %d stopped: %s", self.shard, error)

    def _stands(self, stop: CorruptionError | RouteStopError | None) -> None:
        """What has stopped the shard, if anything has; `routes status` shows what a route has."""
        self.stopped_by = stop
        if self._outgoing is not None:
            said = (str(stop), stop.offset) if isinstance(stop, RouteStopError) else ("", 0)
            self._outgoing.counts.stands(*said)

    def _go_on(self) -> None:
        """Nothing has stopped the shard any more; but a route has until the frame is behind that it could not send."""
        if not isinstance(self.stopped_by, RouteStopError) or self.stopped_by.offset <= self._committed:
            self._stands(None)

    def allow_skips(self, requests: dict[int, SkipRequest], passes: Collection[int] = ()) -> bool:
        """Take operators' requests to skip frames, and to pass over what no route can send at these WAL offsets;
        whether the shard is stopped at one of them and should recover now."""
        self._skips, self._passes = requests, passes
        if isinstance(self.stopped_by, RouteStopError):
            return self.state is ShardState.STOPPED and self.stopped_by.offset in passes
        return self._bad_frame_at in requests

    @property
    def wants_retry(self) -> bool:
        """Whether it is time to try again what stopped the shard."""
        return self._retry_at is not None and self._clock() >= self._retry_at

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def due_in(self) -> float | None:
        """Seconds until a checkpoint is due, None if nothing was gathered or a group is incomplete."""
        if self.state is not ShardState.RUNNING or self._gathered_since is None or self._fold is None:
            return None
        if not self._fold.at_group_boundary:
            return None
        if self._cut_off or self._stopping is not None or self._is_full(self._fold):
            return 0.0
        return max(0.0, self._gathered_since + self._config.checkpoint_interval_s - self._clock())

    def checkpoint_if_due(self, *, now: bool = False) -> bool:
        """Checkpoint if it is time, or if there is anything and `now`; False if the shard must recover."""
        due = self.due_in()
        if due is None or (due > 0 and not now):
            return self.state is not ShardState.RECOVERING
        self._checkpoint()
        stop, self._stopping = self._stopping, None
        if stop is not None and self.state is ShardState.RUNNING:
            stop()
        return self.state is not ShardState.RECOVERING

    def _checkpoint(self) -> None:
        """One Kafka transaction with all row changes and the mark last, then one local batch."""
        fold, producer = self._fold, self._producer
        assert fold is not None
        assert producer is not None
        try:
            changes = fold.changes()
        except LocalStorageError as error:
            self._note_disk(error)
            return
        packed = cache(partial(self._store.packed, changes))
        try:
            self._commit(producer, fold, changes, packed)
        finally:
            packed.cache_clear()  # an error that is kept would keep the batch, and that holds the directory's lock

    def _commit(
        self,
        producer: TransactionalProducer,
        fold: Fold,
        changes: Sequence[Change],
        packed: Callable[[], Callable[[Mapping[bytes, bytes]], None]],
    ) -> None:
        """`packed` makes the local batch, if it is not made yet, and gives what writes it."""
        try:
            if self._outgoing is not None:
                self._outgoing.look()
            offset, clean, done = self._send(producer, fold, changes, packed)
        except RouteStopError as error:
            self._go_back_before(error)
            return
        except OutgrownError as error:
            log.info("shard %d: another producer: %s", self.shard, error)
            self._become(ShardState.RECOVERING)
            return
        except FatalProducerError as error:
            log.warning("shard %d: %s", self.shard, error)
            self._note_failure(fold, len(changes), error, is_explained=self._find_refused(error) or error.fenced)
            self._become(ShardState.FENCED if error.fenced else ShardState.RECOVERING)
            return
        except LocalStorageError as error:
            self._note_disk(error)
            return
        except AgentError as error:
            log.error("shard %d: no checkpoint: %s", self.shard, error, exc_info=error)
            self._agent_raised_at, self._alone_to = self._clock(), fold.mark.offset
            self._become(ShardState.RECOVERING)
            return
        except OperatingError as error:
            log.warning("shard %d: the checkpoint's outcome is not known: %s", self.shard, error)
            self._note_failure(fold, len(changes), error, is_explained=isinstance(error, StaleReadError))
            self._become(ShardState.RECOVERING)
            return
        self._committed = fold.mark.offset
        self._failures = self._failures_alone = 0
        self._portion.succeeded(self._taken_bytes(fold))
        if self._config.tell is not None:
            self._config.tell.committed(self.shard)
        if self._outgoing is not None:
            self._outgoing.counts.committed(done, self._committed, int(self._wall_ms()))
        self._go_on()
        try:
            packed()(note_checkpoint(self.shard, offset + 1, fold.mark.timestamp))
        except LocalStorageError as error:
            self._note_disk(error)
            return
        fold.checkpointed()
        self._clear_gathered()
        if not clean:
            # a repeated EndTxn may still arrive and would commit a part of the next checkpoint
            self._become(ShardState.RECOVERING)

    def _tell(self, fold: Fold) -> list[Sent]:
        """Tell agents what happened, before the checkpoint is: what they give belongs to it."""
        if self._config.tell is None:
            return []
        outputs = self._config.tell(self.shard, fold.happened(), self._frames)
        self._agent_raised_at = None
        return outputs

    def _go_back_before(self, error: RouteStopError) -> None:
        """The fold has no undo: from the last mark again, up to before the group of the frame that stops the shard."""
        before = [offset for offset in self._group_ends if offset < error.offset]
        self._not_beyond = (before[-1] if before else self._committed, error)
        self._become(ShardState.RECOVERING)

    def _find_refused(self, error: FatalProducerError) -> bool:
        """Whether the checkpoint failed because the broker refuses what a route or an agent sends."""
        refused = error.refused_topic
        if not refused:
            return False
        if self._outgoing is not None and self._outgoing.blame(refused, str(error)):
            return True
        found = None if self._config.tell is None else self._config.tell.blame(self.shard, refused, str(error))
        if found is not None:
            log.error("shard %d: no checkpoint: %s", self.shard, found)
            self._agent_raised_at = self._clock()
        return found is not None

    def _note_failure(self, fold: Fold, rows: int, error: OperatingError, *, is_explained: bool) -> None:
        """The checkpoint failed: look at the targets again, take less, and say so if nothing less than this can be
        tried. What is refused, or fenced, is so however little it is: `is_explained`."""
        self._failures = 1 if is_explained else self._failures + 1
        if not is_explained:
            self._portion.failed(self._taken_bytes(fold))
        self._failures_alone = self._failures_alone + 1 if len(self._group_ends) == 1 and not is_explained else 0
        if self._outgoing is None:
            return
        self._outgoing.targets.suspect()
        if self._failures_alone < FAILURES_ALONE:
            return
        stop = self._outgoing.too_much(fold.added(), fold.mark.offset, rows, self._failures_alone, error)
        log.error("%s", stop)
        self._stands(stop)

    def _send(
        self,
        producer: TransactionalProducer,
        fold: Fold,
        changes: Sequence[Change],
        meanwhile: Callable[[], object],
    ) -> tuple[int, bool, Checkpointed]:
        """Send and commit; the mark's offset, whether that was clean, and what routes sent. `meanwhile` may be called
        while rows are on their way. Whatever this meets, the shard recovers; raises RouteStopError, OutgrownError."""
        topic, timeout_s = table_topic(self._config.journal), self._config.request_timeout_s
        outputs: Iterable[Sent] = self._tell(fold)
        done = Checkpointed()
        if self._outgoing is not None:
            routed = self._outgoing.route(fold.added(), self._frames, self._store.get, self._passes, done)
            # rows are sent meanwhile: in vain, time after time, where a route stops the shard again
            is_stopped = isinstance(self.stopped_by, RouteStopError)
            outputs = chain(outputs, list(routed) if is_stopped else routed)
        if self._failures % 2:
            rows = (Sent(topic, self.shard, key, value) for key, value in changes)
            offset = producer.send(chain(outputs, rows), timeout_s)[-1]
        else:
            offset = producer.send_rows(topic, self.shard, changes, timeout_s, beside=outputs, meanwhile=meanwhile)
        self._table.require_next(offset - len(changes) + 1, offset)
        return offset, producer.commit_transaction(timeout_s), done

    def _clear_gathered(self) -> None:
        self._gathered_bytes = 0
        self._gathered_since = None
        self._cut_off = False
        self._frames.clear()
        self._group_ends.clear()

    # ---- the end ---------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """The WAL offset of the last committed mark: group offsets may be committed up to the next one."""
        return self._committed

    @property
    def next_offset(self) -> int | None:
        """The WAL offset behind what was applied, checkpointed or not; None if the shard must recover first."""
        fold = self._fold
        return fold.mark.offset + 1 if self.state is ShardState.RUNNING and fold is not None else None

    def release(self) -> None:
        """Let go of the shard; its local copy stays for the next time."""
        self._become(ShardState.RELEASED)
        if self._config.routes is not None:
            self._config.routes.forget(self.shard)
        if self._config.tell is not None:
            self._config.tell.forget(self.shard)
        self._drop_producer()
        self._store.close()

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
