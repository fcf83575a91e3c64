"""Transactions inside the engine: the XA state table of one shard. Pure.

A part is what one shard holds of a transaction: a header row, and staged operations. Headers are in memory, bounded by
`transactions_max`. Staged operations are rows, which are read again when the transaction is settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from journal.v1.journal_pb2 import Operation, Staged, Transaction
from journal.wire.keys import staged_key, staged_prefix, transaction_key
from journal.wire.rows import position_bytes, unstaged, unstaged_row

if TYPE_CHECKING:
    from journal.fold.rows import Base, Change


class StagedPart:
    """One shard's part of an open or prepared transaction."""

    __slots__ = ("header", "new")

    def __init__(self, header: Transaction) -> None:
        self.header = header
        self.new: dict[bytes, Operation] = {}


class PartTable:
    """The parts of one shard, and their row changes since the last checkpoint."""

    def __init__(self, base: Base, shard: int) -> None:
        self._base = base
        self._shard = shard
        self._parts: dict[int, StagedPart] = {}
        for _, value in base.scan(b"t"):
            header = Transaction.FromString(value)
            if header.shard == shard:
                self._parts[header.tx] = StagedPart(header)
        self._in_base = set(self._parts)
        self._changed: set[int] = set()
        self._tombstones: set[bytes] = set()

    def parts(self) -> Iterator[StagedPart]:
        return iter(self._parts.values())

    def stage(self, op: Operation, epoch: int, offset: int, index: int) -> bool:
        """Keep an operation for its transaction. Returns False if the transaction is prepared already."""
        part = self._open(op.tx, epoch)
        if part.header.prepared:
            return False
        part.new[staged_key(op.tx, self._shard, offset, index)] = op
        part.header.staged += 1
        part.header.bytes += len(op.data)
        self._changed.add(op.tx)
        return True

    def prepare(self, op: Operation, epoch: int, timestamp: int) -> bool:
        """Make the transaction wait for an outcome. Returns False if it is prepared already, or if the PREPARE names
        another number of operations than were staged."""
        part = self._parts.get(op.tx)
        staged = part.header.staged if part else 0
        if (part and part.header.prepared) or staged != op.covers:
            return False
        header = self._open(op.tx, epoch).header
        header.prepared = True
        header.data = op.data
        header.shards = op.shards
        header.timestamp = timestamp
        self._changed.add(op.tx)
        return True

    def settle(self, tx: int, covers: int) -> StagedPart | None:
        """Take the part that a COMMIT or ROLLBACK settles. None if there is none, or if the outcome names another
        number of operations than the part has."""
        part = self._parts.get(tx)
        return part if part is not None and part.header.staged == covers else None

    def operations(self, part: StagedPart) -> Iterator[Operation]:
        """The staged operations of a part as plain ones, in the order in which they were staged."""
        tx = part.header.tx
        if tx in self._in_base:
            for _, value in self._base.scan(staged_prefix(tx, self._shard)):
                yield unstaged_row(value)
        for op in part.new.values():
            yield unstaged(op)

    def forget(self, part: StagedPart) -> None:
        """Drop a settled part and its staged operations."""
        tx = part.header.tx
        if tx in self._in_base:
            self._tombstones.add(transaction_key(tx, self._shard))
            self._tombstones.update(key for key, _ in self._base.scan(staged_prefix(tx, self._shard)))
            self._in_base.discard(tx)
        del self._parts[tx]
        self._changed.discard(tx)

    def drop_unprepared(self) -> int:
        """Drop the parts that are not prepared, as a new epoch does. Returns the number of staged operations in
        them."""
        leftovers = [part for part in self._parts.values() if not part.header.prepared]
        for part in leftovers:
            self.forget(part)
        return sum(part.header.staged for part in leftovers)

    def changes(self) -> Iterable[Change]:
        puts: dict[bytes, bytes] = {}
        for tx in self._changed:
            part = self._parts[tx]
            puts[transaction_key(tx, self._shard)] = part.header.SerializeToString()
            for key, op in part.new.items():
                offset, index = int.from_bytes(key[11:19], "big"), int.from_bytes(key[19:23], "big")
                puts[key] = op.SerializeToString() + position_bytes(offset, index, 0) + _shard_field(self._shard)
        yield from ((key, None) for key in sorted(self._tombstones) if key not in puts)
        yield from puts.items()

    def checkpointed(self) -> None:
        for tx in self._changed:
            self._parts[tx].new.clear()
            self._in_base.add(tx)
        self._changed.clear()
        self._tombstones.clear()

    def _open(self, tx: int, epoch: int) -> StagedPart:
        part = self._parts.get(tx)
        if part is None:
            part = self._parts[tx] = StagedPart(Transaction(tx=tx, shard=self._shard, epoch=epoch))
        return part


def _shard_field(shard: int) -> bytes:
    return Staged(shard=shard).SerializeToString()
