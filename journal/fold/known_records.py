"""What the engine knows of the base without reading it: the records that it put there itself. Pure.

Most operations concern records added not long ago. For these a read of the base (0.6 microseconds for a row that is not
there, 5 for one that is) costs more than all else that the engine does with the operation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyroaring import BitMap64

from journal.fold.update_counts import UpdateCounts

PRESENT_MAX = 16_000_000
"""Records known at most (about four bytes each); then all is forgotten, and learned again from then on."""


class Presence:
    """Records in the base, and which rows of updates they have there. Of other records it knows nothing."""

    __slots__ = ("_counts", "highest", "others", "records", "spilled", "updated")

    def __init__(self, highest: int) -> None:
        self.highest = highest
        """No record of a larger id is in the base."""
        self.records = BitMap64()
        """Those known to be in the base. The fold looks here itself: a call costs more than the look."""
        self.updated = BitMap64()
        """Of those, the ones that have a row of updates there."""
        self.spilled = BitMap64()
        """Of those, the ones that have spilled ones too."""
        self.others = BitMap64()
        """Of those in `updated`, the ones that may have another number of updates than one: `updates_of`."""
        self._counts = UpdateCounts()

    def updates_of(self, record_id: int) -> int | None:
        """How many updates one of `others` has, all in one row; None if that is not known."""
        return None if record_id in self.spilled else self._counts.of(record_id)

    def checkpointed(
        self,
        added: Collection[int],
        deleted: Collection[int],
        lone: Collection[int],
        heads: Mapping[int, int],
        spilled: Collection[int],
    ) -> None:
        """The base now is without `deleted`, then with `added`. `lone` have one update there, `heads` so many in one
        row, and `spilled` have more."""
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
