"""What agents are told about a WAL frame, in addition to the frame's operations."""

from __future__ import annotations

from typing import NamedTuple

AGENT_RETRY_S = 1.0
"""How long a shard leaves an agent alone that raised, or gave what Kafka refuses, before it tells it the same again."""


AGENTS_END_S = 10.0
"""How long a worker that stops waits for agents to be done with what they are told."""


class FrameFacts(NamedTuple):
    """The facts of a frame that its operations share. `timestamp` is the broker's, ms since 1970."""

    epoch: int
    node: str
    group: int
    timestamp: int
