"""One checkpoint of a shard: its size, and its Kafka transaction of what agents and routes send, rows, and the mark
last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from journal.disk.ports import LocalStore
from journal.fold.engine import Fold
from journal.fold.rows import Change
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from journal.topics.names import table_topic, worker_id
from journal.wal.portion import Portion
from streams.agents.facts import FrameFacts
from streams.routes.counts import Checkpointed
from streams.routes.outgoing import ShardOutgoing
from streams.worker.shard_agents import ShardAgents
from streams.worker.shard_config import ShardConfig
from streams.worker.shard_table import ShardTable


class CheckpointSize:
    """How much one checkpoint takes: less after a failure that its size may explain, one group where agents failed."""

    def __init__(self, bytes_max: int) -> None:
        self._portion = Portion(bytes_max)
        self._one_group_to = -1
        """Up to this WAL offset a checkpoint takes one group: agents that were told of several failed."""
        self._failures = 0
        """Number of checkpoints that failed in a row."""
        self.failures_alone = 0
        """How many of the last failed checkpoints held one group only, and nothing else explains their failure."""

    def is_reached(self, size: int, group_end: int | None) -> bool:
        """Whether a checkpoint of `size` bytes takes no more. `group_end` is the WAL offset at which its first group
        ends, if one does and agents or routes are told."""
        if group_end is not None and group_end <= self._one_group_to:
            return True
        return size >= self._portion.bytes

    def succeeded(self, size: int) -> None:
        """A checkpoint of `size` bytes is committed."""
        self._failures = self.failures_alone = 0
        self._portion.succeeded(size)

    def failed(self, size: int, groups: int) -> None:
        """A checkpoint of `size` bytes and so many groups failed, and nothing but its size explains that."""
        self._failures += 1
        self._portion.failed(size)
        self.failures_alone = self.failures_alone + 1 if groups == 1 else 0

    def failed_of_any_size(self) -> None:
        """A checkpoint failed as a smaller one would have: it was fenced or refused."""
        self._failures, self.failures_alone = 1, 0

    def take_one_group_to(self, offset: int) -> None:
        """An agent failed: tell agents of one group a checkpoint, up to this WAL offset."""
        self._one_group_to = offset

    @property
    def wants_reports(self) -> bool:
        """Whether the next checkpoint asks the broker for the fate of each record. Every other one behind a failure
        does, to learn what is refused."""
        return self._failures % 2 == 1


class Committed(NamedTuple):
    """A checkpoint whose transaction is committed."""

    mark_at: int
    """The offset of its mark in the table partition."""
    is_clean: bool
    """False if the end of the transaction may have been sent twice: the second one may still arrive, and would commit a
    part of the next checkpoint."""
    routed: Checkpointed
    """What routes sent in it."""


class CheckpointSender:
    """Owns the producer of one shard, whose transactions are its checkpoints."""

    def __init__(
        self,
        shard: int,
        config: ShardConfig,
        kafka: Kafka,
        store: LocalStore,
        table: ShardTable,
        agents: ShardAgents,
        outgoing: ShardOutgoing | None,
    ) -> None:
        """`outgoing` are the shard's routes; None without routes."""
        self._shard = shard
        self._config = config
        self._kafka = kafka
        self._store = store
        self._table = table
        self._agents = agents
        self._outgoing = outgoing
        self._topic = table_topic(config.journal)
        self._producer: TransactionalProducer | None = None
        self.passes: Collection[int] = ()
        """WAL offsets at which an operator has left out what no route can send."""

    def open(self) -> None:
        """Make a new producer, in place of one that was closed: its initialisation fences the shard's previous owner,
        and ends what that left open.

        Raises OperatingError.
        """
        config, name = self._config, worker_id(self._config.journal, self._shard)
        if config.routes is None or self._outgoing is None:
            self._producer = self._kafka.transactional_producer(name)
        else:
            self._producer = config.routes.producer(name, self._outgoing.prepare())
        self._producer.init(config.request_timeout_s)

    def close(self) -> None:
        """Give the producer up, with whatever it has under way."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def send(
        self,
        fold: Fold,
        facts: Mapping[int, FrameFacts],
        changes: Sequence[Change],
        meanwhile: Callable[[], object],
        *,
        routes_first: bool,
        wants_reports: bool,
    ) -> Committed:
        """Send one checkpoint and commit it. `meanwhile` may be called while rows are on their way.

        `routes_first` sends no row before routes have given all their records. `wants_reports` asks the broker for the
        fate of each record. Whatever this raises, the shard must recover: RouteStopError, OutgrownError, AgentError,
        StaleReadError, and whatever a producer raises.
        """
        producer, timeout_s = self._producer, self._config.request_timeout_s
        assert producer is not None
        if self._outgoing is not None:
            self._outgoing.look()
        outputs: Iterable[Sent] = self._agents.tell(fold, facts)
        routed = Checkpointed()
        if self._outgoing is not None:
            sent = self._outgoing.route(fold.added(), facts, self._store.get, self.passes, routed)
            outputs = chain(outputs, list(sent) if routes_first else sent)
        if wants_reports:
            rows = (Sent(self._topic, self._shard, key, value) for key, value in changes)
            mark_at = producer.send(chain(outputs, rows), timeout_s)[-1]
        else:
            mark_at = producer.send_rows(
                self._topic, self._shard, changes, timeout_s, beside=outputs, meanwhile=meanwhile
            )
        self._table.require_next(mark_at - len(changes) + 1, mark_at)
        return Committed(mark_at, producer.commit_transaction(timeout_s), routed)
