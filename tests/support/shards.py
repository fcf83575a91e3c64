"""The configuration of a shard's worker, for tests that are about something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streams.worker.shard_config import ShardConfig
from tests.support.build import JOURNAL


def shard_config(journal: str, **changes: Any) -> ShardConfig:
    """The configuration of a journal with one shard, which checkpoints whatever there is; `changes` go first."""
    config = ShardConfig(
        journal=journal,
        journal_uuid=JOURNAL,
        shards=1,
        copy_identity=b"table",
        checkpoint_interval_s=0.0,
        checkpoint_bytes_max=1_000_000,
        updates_row_bytes_max=4096,
        request_timeout_s=5.0,
        delete_retention_ms=10**9,
        min_compaction_lag_ms=10**6,
        held_bytes_max=10**6,
    )
    return replace(config, **changes)
