"""The numbers that an activation gives out: ids of records, ids of things that are not durable, and numbers of
transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from journal.limits import VIRTUAL_SHARDS
from journal.wire.ids import make_id, make_ids, make_volatile_id

_EPOCH_SHIFT = 32


class Issued:
    """The last number of each kind. Its core's lock guards it. Raises IdsExhaustedError if no number is left."""

    def __init__(self) -> None:
        self.sequence = 0
        """The highest sequence of an id that a record has or had. Hot paths increment it themselves."""
        self._volatile = 0
        self._epoch = 0
        self._tx = 0

    def begin(self, epoch: int, sequence: int) -> None:
        """Give out numbers of this epoch from now on; `sequence` is the highest one in the tables."""
        self.sequence, self._volatile = sequence, 0
        self._epoch, self._tx = epoch, epoch << _EPOCH_SHIFT

    def new_id(self, virtual_shard: int) -> int:
        record_id = make_id(self.sequence + 1, virtual_shard % VIRTUAL_SHARDS)
        self.sequence += 1
        return record_id

    def new_ids(self, virtual_shards: Sequence[int]) -> list[int]:
        ids = make_ids(self.sequence + 1, virtual_shards)
        self.sequence += len(ids)
        return ids

    def new_volatile_id(self, virtual_shard: int) -> int:
        volatile_id = make_volatile_id(self._epoch, self._volatile + 1, virtual_shard)
        self._volatile += 1
        return volatile_id

    def new_tx(self, is_open: Callable[[int], bool]) -> int:
        """A number for a transaction that no open transaction has."""
        self._tx += 1
        while is_open(self._tx):
            self._tx += 1
        return self._tx
