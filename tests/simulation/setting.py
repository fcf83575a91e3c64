"""One seed's journal: its shape, its limits and its times. Small bounds, so that a few hundred operations meet them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from journal.config import Settings
from journal.errors import JournalError
from journal.limits import Limits
from journal.process.clocks import Timing
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Identity
from journal.wal.config import WriterConfig
from journal.wire.frames import FORMAT, MAGIC
from streams.worker.shard_config import ShardConfig
from tests.simulation.clocks import Clocks
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.recording import RecordingBroker
from tests.simulation.scheduler import Scheduler

OnCritical = Callable[[JournalError], None]

JOURNAL = "sim"
UUID = bytes(range(0x40, 0x50))

REQUEST_S = 1.0
FENCE_CHECK_S = 1.5
TRANSACTION_TIMEOUT_S = 2.5
GATE_S = 6.0
FENCED_PAUSE_S = 1.0
RETENTION_S = 8.0
AHEAD_S = (0.0, 0.0, 5.0, -5.0, 60.0, -60.0)
"""How far the brokers' clock may be ahead of the machines'."""
MANY_SHARDS = 0.1
"""How many seeds have 16 shards."""

LIMITS = Limits(
    frame_bytes_max=4096,
    data_bytes_max=2048,
    queue_operations_max=24,
    transaction_buffer_operations_max=3,
    staged_operations_max=12,
    staged_total_operations_max=40,
    transactions_max=8,
    queue_bytes_max=16_384,
    transaction_buffer_bytes_max=2048,
    staged_bytes_max=8192,
    staged_total_bytes_max=32_768,
    updates_row_bytes_max=96,
    checkpoint_bytes_max=4096,
    held_bytes_max=1_000_000,
)


@lru_cache(maxsize=8)
def _limits_with(group_bytes_max: int) -> Limits:
    return Limits.model_validate(LIMITS.model_dump() | {"group_bytes_max": group_bytes_max})


@lru_cache(maxsize=8)
def settings_of(shards: int) -> Settings:
    """What read-only loads take; built once, as reading the environment takes a millisecond."""
    return Settings(journal=JOURNAL, node="reader", shards=shards, limits=LIMITS)


@lru_cache(maxsize=64)
def node_settings(shards: int, name: str, preferred: bool = False) -> Settings:
    """What a node takes that decides by itself, in times that a simulation can live through."""
    return Settings(
        journal=JOURNAL,
        node=name,
        shards=shards,
        limits=LIMITS,
        fence_check_ms=int(FENCE_CHECK_S * 1000),
        node_session_timeout_ms=2000,
        node_heartbeat_ms=300,
        node_report_ms=1000,
        handover_timeout_ms=1500,
        lone_start_ms=5000,
        activation_retry_ms=300,
        preferred=preferred,
        fail_back=preferred,
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """What all processes of a seed share."""

    broker: RecordingBroker
    scheduler: Scheduler
    shards: int
    records_per_poll: int
    records_per_produce: int
    checkpoint_interval_s: float
    compaction_lag_s: float
    pace_s: float
    join_s: float
    recovery_s: float
    rejoin_s: float
    """Between a worker's giving its shards back and its hearing which it has now: others may have them meanwhile."""
    clocks: Clocks
    group_bytes_max: int = LIMITS.queue_bytes_max

    @staticmethod
    def by_chance(broker: RecordingBroker, scheduler: Scheduler, chance: Random, clocks: Clocks) -> Setting:
        setting = Setting(
            broker,
            scheduler,
            shards=16 if chance.random() < MANY_SHARDS else chance.choice((1, 2, 2, 3)),
            records_per_poll=chance.choice((1, 3, 100)),
            records_per_produce=chance.choice((2, 3, 1000)),
            checkpoint_interval_s=chance.choice((0.02, 0.1, 0.3)),
            compaction_lag_s=chance.choice((0.05, 0.5, 2.0)),
            pace_s=chance.choice((0.0, 0.001)),
            join_s=chance.choice((0.0, 0.001)),
            group_bytes_max=chance.choice((600, LIMITS.queue_bytes_max)),
            recovery_s=chance.choice((1.5, 8.0, 8.0)),
            rejoin_s=chance.choice((0.0, 0.05, 0.5, 2.0)),
            clocks=clocks,
        )
        broker.ahead_s = chance.choice(AHEAD_S)
        broker.producer_epochs = chance.choice((32_767, 32_767, 4))
        setting.create_topics()
        return setting

    @property
    def identity(self) -> Identity:
        return Identity(magic=MAGIC, format=FORMAT, journal=UUID, name=JOURNAL, shards=self.shards)

    def create_topics(self) -> None:
        """Make the topics that `init` makes, with times that a simulation can live through."""
        self.broker.create_topic(wal_topic(JOURNAL), self.shards, 1, {"cleanup.policy": "delete"})
        self.create_table()
        self.broker.create_topic(control_topic(JOURNAL), 1, 1, self._compacted())
        row = control_row(JOURNAL, IDENTITY_KEY, self.identity)
        self.broker.write(row.topic, row.partition, [(row.key, row.value)])

    def create_table(self) -> None:
        self.broker.create_topic(table_topic(JOURNAL), self.shards, 1, self._compacted())

    def _compacted(self) -> dict[str, str]:
        lag_ms, retention_ms = int(self.compaction_lag_s * 1000), int(RETENTION_S * 1000)
        return {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(lag_ms),
            "delete.retention.ms": str(retention_ms),
        }

    def kafka(self, node: str) -> SimulatedKafka:
        return SimulatedKafka(
            self.broker,
            node,
            transaction_timeout_s=TRANSACTION_TIMEOUT_S,
            records_per_poll=self.records_per_poll,
            records_per_produce=self.records_per_produce,
        )

    def timing(self, machine: str) -> Timing:
        now, wall_s = self.clocks.elapsed(machine), self.clocks.wall(machine)
        return Timing(now, self.scheduler.pause, REQUEST_S, self.recovery_s, FENCE_CHECK_S, wall_s=wall_s)

    def wall_ms(self, machine: str) -> Callable[[], float]:
        wall_s = self.clocks.wall(machine)
        return lambda: wall_s() * 1000

    @property
    def limits(self) -> Limits:
        return _limits_with(self.group_bytes_max)

    @property
    def writer_config(self) -> WriterConfig:
        pace_s, bytes_max = self.pace_s, LIMITS.queue_bytes_max
        return WriterConfig(JOURNAL, UUID, self.shards, pace_s, 4 * pace_s, self.join_s, bytes_max)

    def shard_config(self, copy_identity: bytes) -> ShardConfig:
        return ShardConfig(
            journal=JOURNAL,
            journal_uuid=UUID,
            shards=self.shards,
            copy_identity=copy_identity,
            checkpoint_interval_s=self.checkpoint_interval_s,
            checkpoint_bytes_max=LIMITS.checkpoint_bytes_max,
            updates_row_bytes_max=LIMITS.updates_row_bytes_max,
            request_timeout_s=REQUEST_S,
            delete_retention_ms=int(RETENTION_S * 1000),
            min_compaction_lag_ms=int(self.compaction_lag_s * 1000),
            held_bytes_max=LIMITS.held_bytes_max,
        )
