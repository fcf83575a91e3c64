"""One shard tells the agents of a service what happened: before each checkpoint, and after a pause if one failed."""

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
    """Tells the agents what happened in one shard. Without agents, every call does nothing."""

    def __init__(self, shard: int, agents: OperationAgents | None, clock: Clock) -> None:
        self._shard = shard
        self._agents = agents
        self._clock = clock
        self._failed_at: float | None = None
        """When an agent last failed; None once agents were told since."""

    def require_pause_over(self) -> None:
        """Raises DeadlineError if an agent failed a short while ago."""
        if self._failed_at is not None and self._clock() - self._failed_at < AGENT_RETRY_S:
            raise DeadlineError(f"an agent failed; it is told again after {AGENT_RETRY_S:g} s")

    def tell(self, fold: Fold, facts: Mapping[int, FrameFacts]) -> list[Sent]:
        """Tell the agents what happened; what they give, which belongs to the checkpoint. Raises AgentError."""
        if self._agents is None:
            return []
        outputs = self._agents(self._shard, fold.happened(), facts)
        self._failed_at = None
        return outputs

    def failed(self) -> None:
        """An agent has failed: pause before the agents are told again."""
        self._failed_at = self._clock()

    def blame(self, topic: str, reason: str) -> bool:
        """Kafka refused a record for `topic`: whether agents give to it. If so, they have failed."""
        found = None if self._agents is None else self._agents.blame(self._shard, topic, reason)
        if found is not None:
            log.error("shard %d: no checkpoint: %s", self._shard, found)
            self.failed()
        return found is not None

    def committed(self) -> None:
        """A checkpoint is committed, with all that agents gave for it."""
        if self._agents is not None:
            self._agents.committed(self._shard)

    def release(self) -> None:
        """The shard is another worker's now."""
        if self._agents is not None:
            self._agents.forget(self._shard)
