"""The problems of a journal, for `status --check`, so that a monitor need not read text."""

from __future__ import annotations

from collections.abc import Sequence

from journal.kafka.ports import GroupMember
from journal.words import first_few

UNHEALTHY = 3
"""The exit code of `status --check` if something is wrong. Commands use 1 and 2 for what they could not do."""


def problems(node_state: str, workers: Sequence[GroupMember], shards: int, stopped: Sequence[int]) -> list[str]:
    """A line for each fault: no active node, shards that no worker has, and stopped shards. `node_state` is that of
    `JournalStatus`."""
    held = {shard for worker in workers for _, shard in worker.partitions}
    missing = sorted(set(range(shards)) - held)
    found = [] if node_state == "active" else ["no node is active"]
    if missing:
        found.append(f"no worker has shards {first_few(missing)}")
    if stopped:
        found.append(f"shards {first_few(stopped)} are stopped")
    return found
