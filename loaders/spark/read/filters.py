"""Filters of a query that narrow what a batch reads: on shards, on offsets, and on the earliest time.

Spark applies them to the rows again, so a filter that is not understood costs time and nothing else. A latest time is
not among them: where a broker's clock has stepped back, records with an earlier time follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

_SHARD, _OFFSET, _TIME = ("shard", "partition"), ("offset",), ("appended", "written", "timestamp")


@dataclass
class Narrowed:
    """The part that filters leave."""

    shards: frozenset[int] | None = None
    """The shards that may have rows; None for all."""
    first: int = 0
    """The first offset that may have a row."""
    end: int | None = None
    """The first offset from which on there is none; None for no limit."""
    since: datetime | None = None
    """The earliest time of a row; None for any."""

    def narrow(self, filter_: Filter) -> None:
        """Take one more filter into account."""
        path: Sequence[str] = getattr(filter_, "attribute", ())
        value = getattr(filter_, "value", None)
        if len(path) != 1 or value is None:
            return
        if path[0] in _SHARD:
            self._narrow_shards(filter_, value)
        elif path[0] in _OFFSET:
            self._narrow_offsets(filter_, value)
        elif path[0] in _TIME and isinstance(filter_, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.since = value if self.since is None else max(self.since, value)

    def _narrow_shards(self, filter_: Filter, value: Any) -> None:
        if isinstance(filter_, EqualTo | In):
            named = frozenset(value if isinstance(filter_, In) else (value,))
            self.shards = named if self.shards is None else self.shards & named

    def _narrow_offsets(self, filter_: Filter, value: Any) -> None:
        for kind, first, end in _OFFSETS:
            if isinstance(filter_, kind):
                if first is not None:
                    self.first = max(self.first, first(value))
                if end is not None:
                    self.end = end(value) if self.end is None else min(self.end, end(value))


_Bound = Callable[[int], int]
_OFFSETS: tuple[tuple[type[Filter], _Bound | None, _Bound | None], ...] = (
    (EqualTo, lambda at: at, lambda at: at + 1),
    (GreaterThan, lambda at: at + 1, None),
    (GreaterThanOrEqual, lambda at: at, None),
    (LessThan, None, lambda at: at),
    (LessThanOrEqual, None, lambda at: at + 1),
)
"""Kinds of filters on offsets: the first offset that each leaves, and the first one from which on it leaves none."""


def narrowed(filters: Iterable[Filter]) -> Narrowed:
    """The part that these filters leave; all of them hold for each of its rows."""
    found = Narrowed()
    for each in filters:
        found.narrow(each)
    return found


def narrow_ranges(
    starts: Mapping[int, int], ends: Mapping[int, int], left: Narrowed
) -> tuple[dict[int, int], dict[int, int]]:
    """Starts and ends of the shards, as far as filters leave them. `since` is not looked at."""
    shards = [shard for shard in starts if left.shards is None or shard in left.shards]
    end = float("inf") if left.end is None else left.end
    return (
        {shard: max(starts[shard], left.first) for shard in shards},
        {shard: int(min(ends[shard], end)) for shard in shards},
    )
