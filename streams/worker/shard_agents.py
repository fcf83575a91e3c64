"""How one shard calls the agents of a service: before each checkpoint, and after a pause if one failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from journal.errors import DeadlineError
from journal.fold.engine import Fold
from journal.kafka.ports import Sent
from journal.process.clocks import Clock
from streams.agents.agents import OperationAgents
from streams.agents.facts import AGENT_RETRY_S, FrameFacts

log = logging.getLogger(__name__)


class ShardAgents:
    """Calls the agents with the operations of one shard. Without agents, every method does nothing."""

    def __init__(self, shard: int, agents: OperationAgents | None, clock: Clock) -> None:
        self._shard = shard
        self._agents = agents
        self._clock = clock
        self._failed_at: float | None = None
        """When an agent last failed; None after a later success."""

    def require_pause_over(self) -> None:
        """Raises DeadlineError if an agent failed a short while ago."""
        if self._failed_at is not None and self._clock() - self._failed_at < AGENT_RETRY_S:
            raise DeadlineError(f"an agent failed; it is told again after {AGENT_RETRY_S:g} s")

    def tell(self, fold: Fold, facts: Mapping[int, FrameFacts]) -> list[Sent]:
        """Call the agents with the operations; returns their outputs, which belong to the checkpoint. Raises
        AgentError."""
        if self._agents is None:
            return []
        outputs = self._agents(self._shard, fold.happened(), facts)
        self._failed_at = None
        return outputs

    def failed(self) -> None:
        """Note that an agent has failed. The next call comes after a pause."""
        self._failed_at = self._clock()

    def blame(self, topic: str, reason: str) -> bool:
        """Note that Kafka refused a record for `topic`; returns whether agents send to it. If so, they count as
        failed."""
        found = None if self._agents is None else self._agents.blame(self._shard, topic, reason)
        if found is not None:
            log.error("shard %d: no checkpoint: %s", self._shard, found)
            self.failed()
        return found is not None

    def committed(self) -> None:
        """Note that a checkpoint is committed, with all outputs of agents for it."""
        if self._agents is not None:
            self._agents.committed(self._shard)

    def release(self) -> None:
        """Note that another worker has the shard now."""
        if self._agents is not None:
            self._agents.forget(self._shard)
