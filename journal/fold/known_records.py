"""The records of the base that the engine knows without reading it, because it wrote them there itself. Pure.

Most operations concern records that were added not long ago. For these, a read of the base (0.6 microseconds for a row
that does not exist, 5 for one that does) would cost more than all other work on the operation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyroaring import BitMap64

from journal.fold.update_counts import UpdateCounts

PRESENT_MAX = 16_000_000
"""Largest number of known records, at about four bytes each. Beyond it all are forgotten, and new ones are learned."""


class Presence:
    """Known records of the base, and which rows of updates they have there. It knows nothing of other records."""

    __slots__ = ("_counts", "highest", "others", "records", "spilled", "updated")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        """The highest record id that the base may hold."""
        self.records = BitMap64()
        """Records that are known to be in the base. The fold reads this set directly, because a method call would cost
        more than the look-up."""
        self.updated = BitMap64()
        """Known records that have a row of updates in the base."""
        self.spilled = BitMap64()
        """Known records that also have spilled updates."""
        self.others = BitMap64()
        """Known records in `updated` whose number of updates may differ from one: see `updates_of`."""
        self._counts = UpdateCounts()

    def updates_of(self, record_id: int) -> int | None:
        """Number of updates in the only row of updates of a record in `others`; None if that is not known."""
        return None if record_id in self.spilled else self._counts.of(record_id)

    def checkpointed(
        self,
        added: Collection[int],
        deleted: Collection[int],
        lone: Collection[int],
        heads: Mapping[int, int],
        spilled: Collection[int],
    ) -> None:
        """Note a checkpoint: the base has lost the records `deleted`, and then got the records `added`. Records in
        `lone` have one update there, those in `heads` the given number in one row, and those in `spilled` have spilled
        updates too."""
        gone = BitMap64(deleted)
        for known in (self.records, self.updated, self.others, self.spilled):
            known.difference_update(gone)
        self._counts.drop(gone)
        if len(self.records) + len(added) > PRESENT_MAX:
            for known in (self.records, self.updated, self.others, self.spilled):
                known.clear()
            self._counts = UpdateCounts()
        self.records.update(added)
        self.highest = max(self.highest, max(added, default=0))
        self.updated.update(lone)
        self.updated.update(heads)
        self.others.update(heads)
        for record_id, updates in heads.items():
            self._counts.put(record_id, updates)
        self.spilled.update(spilled)
