"""One shard's checkpoints: frames in, rows and a mark out, in one Kafka transaction each, and then the local copy.

After an assignment and after every outcome that is not known, nothing held in memory counts: `recover` fences the
previous owner, reads the table partition to its end, and says where to read the WAL from. A frame that the journal
cannot mean (garbage, a gap) stops the shard, with everything before it checkpointed, until an operator has it skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from journal.engine import Change, Fold
from journal.errors import (
    CorruptionError,
    FrameError,
    GapError,
    LocalDamageError,
    LocalStorageError,
    OperatingError,
)
from journal.kafka.control import table_topic, wal_topic, worker_id
from journal.kafka.ports import (
    AbortableProducerError,
    Clock,
    FatalProducerError,
    Kafka,
    TransactionalProducer,
)
from journal.local.ports import LocalStore
from journal.replica import Replica, note_checkpoint
from journal.v1.journal_pb2 import MARKER, Frame, Mark, Skipped, SkipRequest
from journal.wire.frames import decode_frame

log = logging.getLogger(__name__)

RECOVERY_TIMEOUT_S = 600.0
"""How long a shard may read its table partition before it gives up."""


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


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """What every shard of a worker shares. Times are seconds, sizes bytes."""

    journal: str
    journal_uuid: bytes
    shards: int
    copy_identity: bytes
    checkpoint_interval_s: float
    checkpoint_bytes_max: int
    updates_row_bytes_max: int
    request_timeout_s: float
    delete_retention_ms: int
    min_compaction_lag_ms: int
    held_bytes_max: int


def shard_replica(
    shard: int, config: ShardConfig, kafka: Kafka, store: LocalStore, *, clock: Clock, wall_ms: Clock
) -> Replica:
    """What brings a shard's local copy to the table's end."""
    return Replica(
        kafka,
        table_topic(config.journal),
        [shard],
        store,
        config.copy_identity,
        clock=clock,
        wall_ms=wall_ms,
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        held_bytes_max=config.held_bytes_max,
    )


class ShardWorker:
    """The worker's part for one shard. Not thread-safe: the thread that drives the worker owns it."""

    def __init__(
        self, shard: int, config: ShardConfig, kafka: Kafka, store: LocalStore, *, clock: Clock, wall_ms: Clock
    ) -> None:
        self.shard = shard
        self.state = ShardState.RECOVERING
        self.stopped_by: CorruptionError | None = None
        self._stopped_at: int | None = None
        self._config = config
        self._kafka = kafka
        self._store = store
        self._clock = clock
        self._wall_ms = wall_ms
        self._producer: TransactionalProducer | None = None
        self._fold: Fold | None = None
        self._skips: dict[int, SkipRequest] = {}
        self._gathered_bytes = 0
        self._gathered_since: float | None = None
        self._cut_off = False
        self._committed = -1
        self._damaged = False
        """The local copy cannot be read: the next recovery builds it anew."""

    def _become(self, state: ShardState) -> None:
        if state is not self.state and state not in _NEXT[self.state]:
            raise AssertionError(f"shard {self.shard}: {self.state} does not become {state}")
        self.state = state

    # ---- recovery --------------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Fence the previous owner, bring the local copy up to the table's end; the WAL offset to read from.

        Raises OperatingError when Kafka does not allow it now, CorruptionError when the topics do not fit together.
        """
        self._become(ShardState.RECOVERING)
        self._drop_producer()
        self._fold = None
        if self._damaged:
            self._store.clear()
            self._damaged = False
        try:
            return self._recover()
        except LocalDamageError as error:
            self._note_damage(error)
            raise

    def _note_damage(self, error: LocalDamageError) -> None:
        log.warning("shard %d: the local copy is damaged, and will be built anew: %s", self.shard, error)
        self._damaged = True
        self._become(ShardState.RECOVERING)

    def _recover(self) -> int:
        config = self._config
        producer = self._kafka.transactional_producer(worker_id(config.journal, self.shard))
        self._producer = producer
        producer.init(config.request_timeout_s)
        mark = self._read_table()
        start, end = self._wal_bounds()
        if not start <= mark.offset + 1 <= end:
            what = f"frames are gone: the WAL holds offsets {start} to {end}, and the next one is {mark.offset + 1}"
            raise GapError(what, topic=wal_topic(config.journal), partition=self.shard, offset=mark.offset + 1)
        highest = self._store.highest_record()
        self._fold = Fold(mark, self._store, updates_row_bytes_max=config.updates_row_bytes_max, highest=highest)
        self._committed = mark.offset
        self._clear_gathered()
        self.stopped_by = self._stopped_at = None
        self._become(ShardState.RUNNING)
        return mark.offset + 1

    def _read_table(self) -> Mark:
        config = self._config
        replica = shard_replica(self.shard, config, self._kafka, self._store, clock=self._clock, wall_ms=self._wall_ms)
        try:
            replica.open(config.request_timeout_s)
            log.info("shard %d: the local copy is %d offsets behind the table", self.shard, replica.lag(self.shard))
            replica.catch_up(RECOVERY_TIMEOUT_S)
            return replica.mark(self.shard)
        finally:
            replica.close()

    def _wal_bounds(self) -> tuple[int, int]:
        reader = self._kafka.reader(wal_topic(self._config.journal))
        try:
            return reader.start_and_end(self.shard, self._config.request_timeout_s)
        finally:
            reader.close()

    # ---- frames ----------------------------------------------------------------------------------------------------

    def take(self, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Apply frames (offset, timestamp in ms, value); the checkpoint comes later. Ignored unless running."""
        fold = self._fold
        if self.state is not ShardState.RUNNING or fold is None:
            return
        for offset, timestamp, value in records:
            if offset <= fold.mark.offset:
                continue
            try:
                self._apply(fold, offset, timestamp, value)
            except CorruptionError as error:
                self._stop_at(offset, error)
                return
            except LocalDamageError as error:
                self._note_damage(error)
                return
            self._gathered_bytes += len(value)
            if self._gathered_since is None:
                self._gathered_since = self._clock()

    def _apply(self, fold: Fold, offset: int, timestamp: int, value: bytes) -> None:
        if offset in self._skips:
            self._skip(fold, offset, timestamp, value)
            return
        frame = decode_frame(value, self._config.journal_uuid, self.shard, self._config.shards)
        fold.apply(offset, timestamp, frame)
        self._cut_off |= frame.count == 1 and frame.operations[0].type == MARKER

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
            reason=reason,
            operator=request.operator,
            timestamp=request.timestamp,
        )
        fold.skip(row, timestamp, frame)

    def _stop_at(self, offset: int, error: CorruptionError) -> None:
        """Checkpoint what came before `offset`, and stop."""
        if self._fold is not None and self._fold.at_group_boundary and self._gathered_since is not None:
            self._checkpoint()
        if self.state is not ShardState.RUNNING:
            return
        self._stopped_at = offset
        topic = wal_topic(self._config.journal)
        self.stop_for(type(error)(error.reason, topic=topic, partition=self.shard, offset=offset))
        name = self._config.journal
        log.error("look at the record, then: kafka-journal repair skip -j %s %d %d", name, self.shard, offset)

    def stop_for(self, error: CorruptionError) -> None:
        """Apply nothing more until an operator has mended what `error` says."""
        self._become(ShardState.STOPPED)
        self.stopped_by = error
        log.error("shard %d stopped: %s", self.shard, error)

    def allow_skips(self, requests: dict[int, SkipRequest]) -> bool:
        """Take operators' skip requests; whether the shard is stopped at one of them and should recover now."""
        self._skips = requests
        return self._stopped_at in requests

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def due_in(self) -> float | None:
        """Seconds until a checkpoint is due, None if nothing was gathered or a group is incomplete."""
        if self.state is not ShardState.RUNNING or self._gathered_since is None or self._fold is None:
            return None
        if not self._fold.at_group_boundary:
            return None
        if self._cut_off or self._gathered_bytes >= self._config.checkpoint_bytes_max:
            return 0.0
        return max(0.0, self._gathered_since + self._config.checkpoint_interval_s - self._clock())

    def checkpoint_if_due(self, *, now: bool = False) -> bool:
        """Checkpoint if it is time, or if there is anything and `now`; False if the shard must recover."""
        due = self.due_in()
        if due is None or (due > 0 and not now):
            return self.state is not ShardState.RECOVERING
        self._checkpoint()
        return self.state is not ShardState.RECOVERING

    def _checkpoint(self) -> None:
        """One Kafka transaction with all row changes and the mark last, then one local batch."""
        fold, producer = self._fold, self._producer
        assert fold is not None
        assert producer is not None
        try:
            changes = fold.changes()
            offset, clean = self._send(producer, changes)
        except FatalProducerError as error:
            log.warning("shard %d: %s", self.shard, error)
            self._become(ShardState.FENCED if error.fenced else ShardState.RECOVERING)
            return
        except LocalDamageError as error:
            self._note_damage(error)
            return
        except OperatingError as error:
            log.warning("shard %d: the checkpoint's outcome is not known: %s", self.shard, error)
            self._become(ShardState.RECOVERING)
            return
        self._committed = fold.mark.offset
        try:
            self._store.write(changes, note_checkpoint(self.shard, offset + 1, int(self._wall_ms())))
        except LocalStorageError as error:
            log.error("shard %d: %s", self.shard, error)
            self._become(ShardState.RECOVERING)
            return
        fold.checkpointed()
        self._clear_gathered()
        if not clean:
            # a repeated EndTxn may still arrive and would commit a part of the next checkpoint
            self._become(ShardState.RECOVERING)

    def _send(self, producer: TransactionalProducer, changes: Sequence[Change]) -> tuple[int, bool]:
        """Send and commit, with what can be done again done again within the request's time; the mark's offset."""
        topic, timeout_s = table_topic(self._config.journal), self._config.request_timeout_s
        until = self._clock() + timeout_s
        while True:
            try:
                offset = producer.send_rows(topic, self.shard, changes, timeout_s)
                break
            except AbortableProducerError as error:
                log.warning("shard %d: sending the checkpoint again: %s", self.shard, error)
                producer.abort_transaction(timeout_s)
                if self._clock() > until:
                    raise
        return offset, producer.commit_transaction(timeout_s)

    def _clear_gathered(self) -> None:
        self._gathered_bytes = 0
        self._gathered_since = None
        self._cut_off = False

    # ---- the end ---------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """The WAL offset of the last committed mark: group offsets may be committed up to the next one."""
        return self._committed

    def release(self) -> None:
        """Let go of the shard; its local copy stays for the next time."""
        self._become(ShardState.RELEASED)
        self._drop_producer()
        self._store.close()

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
