"""What a journal's writer is told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """A journal, and how its transactions are made."""

    journal: str
    uuid: bytes
    shards: int
    pace_s: float
    """The least time between a commit's answer and the next produce: docs/ARCHITECTURE.md, Pacing."""
    pace_max_s: float
    """The longest that time becomes while transactions meet the markers of the last one."""
    join_s: float
    """How long after its first groups a transaction waits for one more to join it."""
    transaction_bytes_max: int
    """Bytes of operations in one transaction of several groups. A single group may have more."""
