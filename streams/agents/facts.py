"""What agents are told about a WAL frame, besides its operations."""

from __future__ import annotations

from typing import NamedTuple

AGENT_RETRY_S = 1.0
"""How long a shard waits before it calls an agent again with the same operations, after the agent has raised an error
or Kafka has refused its output."""


AGENTS_END_S = 10.0
"""How long a worker that stops waits for agents' calls under way."""


class FrameFacts(NamedTuple):
    """Facts of a frame that hold for all of its operations. `timestamp` is the broker's, in ms since 1970."""

    epoch: int
    node: str
    group: int
    timestamp: int
