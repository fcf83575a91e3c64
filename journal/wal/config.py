"""The configuration of a journal's writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """The journal that a writer writes to, and how its transactions are made."""

    journal: str
    uuid: bytes
    shards: int
    pace_s: float
    """The least time between the broker's answer to a commit and the next produce (docs/ARCHITECTURE.md, "Writing")."""
    pace_max_s: float
    """The longest pause before a transaction, while transactions still meet the markers of the previous one."""
    join_s: float
    """How long after its first groups a transaction waits for one more to join it."""
    transaction_bytes_max: int
    """Bytes of operations in one transaction of several groups. A single group may have more."""
