"""Ids and numbers of updates of the living records: what a standby keeps of them for its activation. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64

from journal.fold.update_counts import UpdateCounts
from journal.load.counts import Counts
from journal.wire.ids import SHARD_MASK


class LiveRecords:
    """Ids in a bitmap, and the number of updates of each. A few bytes a record."""

    __slots__ = ("_updates", "counts", "ids")

    def __init__(self) -> None:
        self.ids = BitMap64()
        self.counts = Counts()
        """Counts of all records and updates held here. `put` and `drop` keep them; whoever loads sets them."""
        self._updates = UpdateCounts()

    def load(self, record_ids: Iterable[int]) -> None:
        """Records not known before, whose updates `load_updates` tells."""
        self.ids.update(record_ids)

    def load_updates(self, record_id: int, updates: int) -> None:
        """The number of updates of a record of which none was known."""
        self._updates.load(record_id, updates)

    def put(self, record_id: int, updates: int) -> None:
        """A record as it is now."""
        counts, place = self.counts, record_id & SHARD_MASK
        if record_id not in self.ids:
            self.ids.add(record_id)
            counts.records[place] += 1
        counts.updates[place] += updates - self._updates.put(record_id, updates)

    def drop(self, record_id: int) -> None:
        """A record is gone, if it was there."""
        counts, place = self.counts, record_id & SHARD_MASK
        if record_id in self.ids:
            self.ids.discard(record_id)
            counts.records[place] -= 1
        counts.updates[place] -= self._updates.put(record_id, 0)
