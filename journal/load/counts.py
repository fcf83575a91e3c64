"""Numbers of rows, shard by shard: what a load was told, compared with what the marks say. Pure.

A copy that missed tombstones has rows too many, and one that was cut off from the table has others than it should.
Nothing else tells: each row of it is a row that once was. So every load counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from journal.errors import CountError
from journal.fold.rows import Base
from journal.limits import VIRTUAL_SHARDS
from journal.v1.journal_pb2 import Mark, Transaction
from journal.wire.keys import STAGED_PREFIX, TRANSACTION_PREFIX, xa_shard_of


class Numbers(NamedTuple):
    """How many rows of each kind a shard has."""

    records: int
    updates: int
    staged: int
    prepared: int

    @classmethod
    def of(cls, mark: Mark) -> Numbers:
        """Those that a mark says."""
        return cls(mark.records, mark.updates, mark.staged, mark.prepared)

    def __str__(self) -> str:
        return (
            f"{self.records} records, {self.updates} updates, {self.staged} staged operations and {self.prepared} "
            "prepared parts"
        )


class Counts:
    """Records and their updates, by virtual shard: a hot path counts there, and adds up later."""

    __slots__ = ("records", "updates")

    def __init__(self) -> None:
        self.records = [0] * VIRTUAL_SHARDS
        self.updates = [0] * VIRTUAL_SHARDS

    def require(self, base: Base, marks: Mapping[int, Mark]) -> None:
        """Raises CountError unless these, and the transactions in `base`, are as many as `marks` say: of all shards, or
        of one, if the base has no rows of others."""
        for shard, counted in self.numbers(base, marks).items():
            mark = marks[shard]
            if counted != Numbers.of(mark):
                raise CountError(
                    f"shard {shard} has {counted}, and its mark at WAL offset {mark.offset} says {Numbers.of(mark)}"
                )

    def numbers(self, base: Base, shards: Collection[int]) -> dict[int, Numbers]:
        """By shard: of all shards, or of one, if the base has no rows of others."""
        staged, prepared = _transactions(base)
        found = {}
        for shard in shards:
            own = slice(shard, None, len(shards)) if len(shards) > 1 else slice(None)
            found[shard] = Numbers(sum(self.records[own]), sum(self.updates[own]), staged[shard], prepared[shard])
        return found


def _transactions(base: Base) -> tuple[Counter[int], Counter[int]]:
    """Staged operations and prepared parts, by shard."""
    staged = Counter(xa_shard_of(key) for key, _ in base.scan(STAGED_PREFIX))
    parts = (Transaction.FromString(value) for _, value in base.scan(TRANSACTION_PREFIX))
    return staged, Counter(part.shard for part in parts if part.prepared)
