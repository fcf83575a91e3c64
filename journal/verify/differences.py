"""The differences that `verify` names. All are counted, and a limited number of each sort is kept, so that the output
is bounded."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict, dataclass, field

KEPT_MAX = 100
"""Number of differences of each sort that are kept by default."""
KEPT_ALL = sys.maxsize
"""Keeps all differences that fit into memory."""
TEXT_MAX = 300
_SKIPPED = "skipped"
"""The sort of the records that an operator had skipped. They are named, but nobody has to mend them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs from the WAL. `what` is its sort; `key` is the id, `tx N`, offset or row that it
    concerns."""

    shard: int
    what: str
    key: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"shard {self.shard}: {self.what}: {self.key}: expected {self.expected}, found {self.found}"


@dataclass(slots=True)
class Differences:
    """A shard's differences: the number of each sort, and the first `kept_max` of each."""

    shard: int
    kept_max: int = KEPT_MAX
    counts: Counter[str] = field(default_factory=Counter)
    kept: list[Difference] = field(default_factory=list)

    def add_skip(self, offset: int) -> None:
        """Name a record that an operator had skipped."""
        self.add(_SKIPPED, f"offset {offset}", "a frame", "skipped by an operator")

    def add(self, what: str, key: str, expected: str, found: str) -> None:
        """Count one difference, and keep it if there is room for its sort."""
        self.counts[what] += 1
        if self.counts[what] <= self.kept_max:
            self.kept.append(Difference(self.shard, what, key, _short(expected), _short(found)))

    @property
    def total(self) -> int:
        """Number of differences that are faults: all but the records that an operator had skipped."""
        return self.counts.total() - self.skipped

    @property
    def skipped(self) -> int:
        return self.counts[_SKIPPED]

    @property
    def left_out(self) -> int:
        """Number of differences that were counted and not kept."""
        return self.counts.total() - len(self.kept)

    def lines(self) -> list[str]:
        """Lines for people: the differences that were kept, and for each sort the number of others."""
        more = {what: count - self.kept_max for what, count in self.counts.items() if count > self.kept_max}
        return [str(one) for one in self.kept] + [
            f"shard {self.shard}: {what}: …and {count:,} more" for what, count in more.items()
        ]

    def to_json(self) -> dict[str, object]:
        return {"total": self.total, "counts": dict(self.counts), "kept": [asdict(one) for one in self.kept]}


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
