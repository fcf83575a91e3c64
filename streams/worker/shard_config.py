"""The settings and collaborators that all shards of a worker share."""

from __future__ import annotations

from dataclasses import dataclass

from streams.agents.agents import OperationAgents
from streams.routes.worker_routes import WorkerRoutes


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """The settings and collaborators that every shard of a worker uses. Times are seconds, sizes bytes."""

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
    tell: OperationAgents | None = None
    """The function that calls agents; None if there are no agents."""
    routes: WorkerRoutes | None = None
    """The routes; None if there are none."""
