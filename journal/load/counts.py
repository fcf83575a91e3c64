"""Numbers of rows in each shard: those that a load met are compared with those that the marks say. Pure.

A copy that missed tombstones has too many rows, and a copy that lost touch with the table has other rows than it
should. Each of these rows looks valid by itself, so only a count shows the fault. So every load counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from journal.errors import CountError, RowError
from journal.fold.rows import Base
from journal.limits import VIRTUAL_SHARDS
from journal.v1.journal_pb2 import Mark, Transaction
from journal.wire.keys import STAGED_PREFIX, TRANSACTION_PREFIX, xa_shard_of, xa_tx_of
from journal.words import counted


class Numbers(NamedTuple):
    """The number of rows of each kind in a shard."""

    records: int
    updates: int
    staged: int
    prepared: int

    @classmethod
    def of(cls, mark: Mark) -> Numbers:
        """The numbers that a mark says."""
        return cls(mark.records, mark.updates, mark.staged, mark.prepared)

    def __str__(self) -> str:
        return (
            f"{counted(self.records, 'record')}, {counted(self.updates, 'update')}, "
            f"{counted(self.staged, 'staged operation')} and {counted(self.prepared, 'prepared part')}"
        )


class Counts:
    """Numbers of records and updates by virtual shard. A load, which is a hot path, only counts by virtual shard; the
    sums by shard are made at the end."""

    __slots__ = ("records", "updates")

    def __init__(self) -> None:
        self.records = [0] * VIRTUAL_SHARDS
        self.updates = [0] * VIRTUAL_SHARDS

    def require(self, base: Base, marks: Mapping[int, Mark]) -> None:
        """Raises CountError unless these numbers, and those of the transactions in `base`, are the ones that `marks`
        say, and RowError if a transaction's part does not say how many operations it has. `marks` has all shards, or
        one if `base` has rows of one shard only."""
        transactions = _Transactions(base)
        for shard, found in self._numbers(transactions, marks).items():
            mark = marks[shard]
            if found != Numbers.of(mark):
                raise CountError(
                    f"shard {shard} has {found}, and its mark at WAL offset {mark.offset} says {Numbers.of(mark)}"
                )
        transactions.require_whole()

    def numbers(self, base: Base, shards: Collection[int]) -> dict[int, Numbers]:
        """The numbers of each shard. `shards` has all shards, or one if `base` has rows of one shard only."""
        return self._numbers(_Transactions(base), shards)

    def _numbers(self, transactions: _Transactions, shards: Collection[int]) -> dict[int, Numbers]:
        staged, prepared = transactions.staged(), transactions.prepared()
        found = {}
        for shard in shards:
            own = slice(shard, None, len(shards)) if len(shards) > 1 else slice(None)
            found[shard] = Numbers(sum(self.records[own]), sum(self.updates[own]), staged[shard], prepared[shard])
        return found


class _Transactions:
    """The rows of the XA state table in a base."""

    def __init__(self, base: Base) -> None:
        self._operations = Counter((xa_tx_of(key), xa_shard_of(key)) for key, _ in base.scan(STAGED_PREFIX))
        self._parts = [Transaction.FromString(value) for _, value in base.scan(TRANSACTION_PREFIX)]

    def staged(self) -> Counter[int]:
        """The number of staged operations by shard."""
        staged: Counter[int] = Counter()
        for (_, shard), operations in self._operations.items():
            staged[shard] += operations
        return staged

    def prepared(self) -> Counter[int]:
        """The number of prepared parts by shard."""
        return Counter(part.shard for part in self._parts if part.prepared)

    def require_whole(self) -> None:
        """Raises RowError unless each part has as many operations as it says, and each operation its part: marks do
        not count a part that is not prepared."""
        said = Counter({(part.tx, part.shard): part.staged for part in self._parts})
        for tx, shard in self._operations | said:
            found = self._operations[tx, shard]
            if found != said[tx, shard]:
                says = f"says {said[tx, shard]}" if said[tx, shard] else "is gone"
                raise RowError(
                    f"transaction {tx} has {counted(found, 'staged operation')} in shard {shard}; its part there {says}"
                )
