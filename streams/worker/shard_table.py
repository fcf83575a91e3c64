"""A shard's table partition, which a recovery reads to its end before anything more of the WAL is applied."""

from __future__ import annotations

import logging

from journal.disk.ports import LocalStore
from journal.errors import ClosedError, DeadlineError, GapError, HangingTransactionError, StaleReadError
from journal.kafka.ports import Kafka
from journal.process.clocks import Clock
from journal.table.replica import Replica
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import Mark
from streams.worker.shard_config import ShardConfig

log = logging.getLogger(__name__)

RECOVERY_TIMEOUT_S = 600.0
"""How long a shard may read its table partition before it gives up."""

GIVE_UP_LOOK_S = 0.5
"""How long a recovery takes to notice that its worker stops."""


def shard_replica(
    shard: int, config: ShardConfig, kafka: Kafka, store: LocalStore, *, clock: Clock, wall_ms: Clock
) -> Replica:
    """A replica that brings a shard's local copy to the table's end."""
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
        counts_rows=True,
    )


class ShardTable:
    """Reads the table partition into the shard's local copy. Only `give_up` is thread-safe."""

    def __init__(
        self, shard: int, config: ShardConfig, kafka: Kafka, store: LocalStore, *, clock: Clock, wall_ms: Clock
    ) -> None:
        self._shard = shard
        self._config = config
        self._kafka = kafka
        self._store = store
        self._clock = clock
        self._wall_ms = wall_ms
        self._topic = table_topic(config.journal)
        self._given_up = False
        self.is_damaged = False
        """Whether the local copy cannot be read: `mend` empties it, so that the next `read` builds it anew."""
        self._read_to: int | None = None
        """The offset at which the last read ended, until the next checkpoint proves that the read was complete."""
        self._behind = 0
        """The table's log must reach at least to the offset before this one, unless Kafka has lost acknowledged
        rows."""

    def mend(self) -> None:
        """Empty a damaged copy. Raises LocalStorageError."""
        if self.is_damaged:
            self._store.clear()
            self.is_damaged = False

    def read(self) -> Mark:
        """Bring the local copy up to the table's end; returns the mark there. The shard's previous owner must be fenced
        already.

        Raises ClosedError after `give_up`, HangingTransactionError, and any error of a `Replica`.
        """
        config = self._config
        replica = shard_replica(self._shard, config, self._kafka, self._store, clock=self._clock, wall_ms=self._wall_ms)
        try:
            replica.open(config.request_timeout_s)
            log.info("shard %d: the local copy is %d offsets behind the table", self._shard, replica.lag(self._shard))
            self._catch_up(replica)
            self._pass_all(replica)
            return replica.mark(self._shard)
        finally:
            replica.close()

    def require_wal_behind(self, mark: Mark) -> None:
        """Raises GapError if the WAL does not continue at the table's mark."""
        topic, following = wal_topic(self._config.journal), mark.offset + 1
        start, end = self._bounds(topic)
        if not start <= following <= end:
            what = f"frames are gone: the WAL holds offsets {start} to {end}, and the next one is {following}"
            raise GapError(what, topic=topic, partition=self._shard, offset=following)

    def require_next(self, first: int, last: int) -> None:
        """Raises StaleReadError if a checkpoint at these offsets, which is not committed yet, does not follow what was
        read or written before it.

        The first checkpoint after a read must begin right where the read ended. If it does not, a deposed leader has
        answered the read, and rows that it did not show would stay in the table for ever. Any later checkpoint must
        begin behind the one before it. If it does not, Kafka has lost the end of the table, and with it the base of
        this checkpoint.
        """
        read_to, self._read_to = self._read_to, None
        behind, self._behind = self._behind, last + 2  # the end marker of its transaction takes an offset, too
        topic = self._topic
        if read_to not in (None, first):
            raise StaleReadError(
                f"{topic}[{self._shard}] was read to offset {read_to}, and what was sent next is at {first}"
            )
        if first < behind:
            raise StaleReadError(
                f"{topic}[{self._shard}] has lost what it held up to offset {behind}: what was sent next is at {first}"
            )

    def give_up(self) -> None:
        """Make a `read` that is under way end soon."""
        self._given_up = True

    def _catch_up(self, replica: Replica) -> None:
        """Catch up in short steps, between which the recovery may be given up."""
        until = self._clock() + RECOVERY_TIMEOUT_S
        while not self._given_up:
            try:
                replica.catch_up(GIVE_UP_LOOK_S)
                return
            except DeadlineError:
                if self._clock() >= until:
                    raise
        raise ClosedError(f"the recovery of shard {self._shard} was given up")

    def _pass_all(self, replica: Replica) -> None:
        """Read up to the high watermark. Our init has ended the previous owner's open transaction, and nobody else
        writes here.

        If a transaction is still open (KAFKA-20734 leaves transactions without an end), our next checkpoint would
        wrongly commit or abort it. So that raises an error.
        """
        topic = self._topic
        _, end = self._bounds(topic, committed=False)
        self._read_to = self._behind = end
        until = self._clock() + self._config.request_timeout_s
        while (behind := replica.behind({self._shard: end})) > 0:
            if replica.poll(max(0.0, until - self._clock())):
                until = self._clock() + self._config.request_timeout_s
            elif self._clock() >= until:
                if self._bounds(topic)[1] >= end:
                    raise DeadlineError(f"{topic}[{self._shard}]: {behind} offsets could not be read in time")
                raise HangingTransactionError(
                    f"{topic}[{self._shard}] holds a transaction that nobody ends: `kafka-transactions.sh find-hanging "
                    f"--topic {topic}` finds it, and `abort` ends it"
                )

    def _bounds(self, topic: str, *, committed: bool = True) -> tuple[int, int]:
        reader = self._kafka.reader(topic, committed=committed)
        try:
            return reader.start_and_end(self._shard, self._config.request_timeout_s)
        finally:
            reader.close()
