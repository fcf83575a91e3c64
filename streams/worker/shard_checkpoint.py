"""One checkpoint of a shard: its size, and its Kafka transaction with the outputs of agents, the records of routes, the
rows, and the mark last."""

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
    """The size of the next checkpoint. It shrinks after a failure that the size may explain, and is one group after
    agents failed."""

    def __init__(self, bytes_max: int) -> None:
        self._portion = Portion(bytes_max)
        self._one_group_to = -1
        """Up to this WAL offset a checkpoint takes one group only, because agents failed when they were told
        several."""
        self._failures = 0
        """The number of successive checkpoints that failed."""
        self.failures_alone = 0
        """The number of successive failed checkpoints that held one group only, and whose failure has no other known
        reason."""

    def is_reached(self, size: int, group_end: int | None) -> bool:
        """Whether a checkpoint of `size` bytes is full. `group_end` is the WAL offset at which its first group ends, if
        it has one and agents or routes are told."""
        if group_end is not None and group_end <= self._one_group_to:
            return True
        return size >= self._portion.bytes

    def succeeded(self, size: int) -> None:
        """Note that a checkpoint of `size` bytes is committed."""
        self._failures = self.failures_alone = 0
        self._portion.succeeded(size)

    def failed(self, size: int, groups: int) -> None:
        """Note that a checkpoint of `size` bytes and this number of groups failed, and that only its size may explain
        it."""
        self._failures += 1
        self._portion.failed(size)
        self.failures_alone = self.failures_alone + 1 if groups == 1 else 0

    def failed_of_any_size(self) -> None:
        """Note that a checkpoint failed for another reason than its size: it was fenced or refused."""
        self._failures, self.failures_alone = 1, 0

    def take_one_group_to(self, offset: int) -> None:
        """Note that an agent failed: up to this WAL offset, each checkpoint tells agents one group only."""
        self._one_group_to = offset

    @property
    def wants_reports(self) -> bool:
        """Whether the next checkpoint asks the broker for the fate of each record. After a failure every other one
        does, to find out which record is refused."""
        return self._failures % 2 == 1


class Committed(NamedTuple):
    """A checkpoint whose transaction is committed."""

    mark_at: int
    """The offset of its mark in the table partition."""
    is_clean: bool
    """False if the request that ended the transaction may have been sent twice. The second one may still arrive, and
    would commit a part of the next checkpoint."""
    routed: Checkpointed
    """The records that routes sent in it."""


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
        """WAL offsets at which an operator has asked to leave out messages that no route can send."""

    def open(self) -> None:
        """Make a new producer, in place of one that was closed. Its init fences the shard's previous owner, and ends
        that owner's open transaction.

        Raises OperatingError.
        """
        config, name = self._config, worker_id(self._config.journal, self._shard)
        if config.routes is None or self._outgoing is None:
            self._producer = self._kafka.transactional_producer(name)
        else:
            self._producer = config.routes.producer(name, self._outgoing.prepare())
        self._producer.init(config.request_timeout_s)

    def close(self) -> None:
        """Drop the producer, with its open transaction."""
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

        With `routes_first` no row is sent before all records of routes are made. With `wants_reports` the broker is
        asked for the fate of each record. After any error the shard must recover: RouteStopError, OutgrownError,
        AgentError, StaleReadError, and the errors of a producer.
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
