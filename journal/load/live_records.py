"""The ids of the living records and their numbers of updates, which a standby keeps so that its activation need not
scan the copy. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from journal.fold.update_counts import UpdateCounts
from journal.load.counts import Counts
from journal.wire.ids import SHARD_MASK


class LiveRecords:
    """The ids of living records in a bitmap, and the number of updates of each. A record takes a few bytes."""

    __slots__ = ("_updates", "counts", "ids")

    def __init__(self) -> None:
        self.ids = BitMap64()
        self.counts = Counts()
        """The numbers of all records and updates held here. `put` and `drop` keep them up to date; `load` and
        `load_updates` do not, so whoever loads sets them."""
        self._updates = UpdateCounts()

    def load(self, record_ids: Iterable[int]) -> None:
        """Add records that were not known before. `load_updates` then notes their updates."""
        self.ids.update(record_ids)

    def load_updates(self, record_id: int, updates: int) -> None:
        """Note the number of updates of a record that has none so far."""
        self._updates.load(record_id, updates)

    def put(self, record_id: int, updates: int) -> None:
        """Note that a record lives, and its present number of updates."""
        counts, place = self.counts, record_id & SHARD_MASK
        if record_id not in self.ids:
            self.ids.add(record_id)
            counts.records[place] += 1
        counts.updates[place] += updates - self._updates.put(record_id, updates)

    def drop(self, record_id: int) -> None:
        """Remove a record that was deleted, if it was known."""
        counts, place = self.counts, record_id & SHARD_MASK
        if record_id in self.ids:
            self.ids.discard(record_id)
            counts.records[place] -= 1
        counts.updates[place] -= self._updates.put(record_id, 0)
