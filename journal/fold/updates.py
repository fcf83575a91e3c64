"""Updates of records inside the engine: the rows that hold them, and the rows that a delete has to tombstone. Pure.

A record's updates share one row (`Head`) while they fit `updates_row_bytes_max`. An update that does not fit goes to a
row of its own (it is spilled), with a key made of its position, or of kind and subject if it is replaceable. So a
delete reads one row to know its tombstones, and scans only for a record that spilled. A record with a thousand updates
is never rewritten as a whole, and a replaceable update of a spilled record is one put.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.wire.keys import record_key, spilled_key, spilled_replaceable_key, updates_key, updates_keys
from journal.wire.rows import position_of, rows_of_one_update, update_of, updates_in, updates_row

if TYPE_CHECKING:
    from journal.fold.rows import Base, Change

RECENT_BYTES_MAX = 16 * 1024 * 1024
"""Default bound on the rows that one shard's fold remembers."""
_RECENT_OVERHEAD_BYTES = 150


class Head:
    """The updates row of one record. Its elements are updates as bytes, in the order of their last write."""

    __slots__ = ("elements", "size", "spilled")

    def __init__(self, row: bytes | None) -> None:
        self.elements: list[bytes] = []
        self.spilled = False
        if row is not None:
            self.elements, self.spilled = updates_in(row)
        self.size = sum(map(len, self.elements))

    def add(self, element: bytes) -> None:
        self.elements.append(element)
        self.size += len(element)

    def remove(self, kind: int, subject: int) -> bool:
        """Take out the replaceable update of this kind and subject; returns whether it was there."""
        for place, element in enumerate(self.elements):
            found = update_of(element)
            if (found.kind, found.replaceable, found.subject) == (kind, True, subject):
                del self.elements[place]
                self.size -= len(element)
                return True
        return False

    def row(self, record_id: int) -> bytes:
        return updates_row(record_id, self.elements, self.spilled)


class UpdateTable:
    """The rows of updates that frames have changed since the last checkpoint."""

    def __init__(self, base: Base, row_bytes_max: int, recent_bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._base = base
        self._row_bytes_max = row_bytes_max
        self.heads: dict[int, Head] = {}
        self.lone: dict[int, bytes] = {}
        """The only update of each record that has no row of updates in the base, if the update is not replaceable. Most
        records with updates are of this kind, and need no head."""
        self._puts: dict[bytes, bytes] = {}
        """The rows that the last call of `changes` gave."""
        self._recent = _Recent(recent_bytes_max // 2)
        self._spilled: dict[int, dict[bytes, bytes]] = {}
        self._tombstones: set[bytes] = set()

    def put(self, record_id: int, value: bytes, fresh: bool, replaced: tuple[int, int] | None = None) -> int:
        """Keep an update of a record that exists; returns the growth of the record's number of updates (0 if the update
        replaces one). `value` is the update's row, with its position. `fresh` says that the base cannot have a row of
        the record's updates. `replaced` are kind and subject of a replaceable update."""
        head = self.heads.get(record_id)
        if head is None:
            lone = self.lone.pop(record_id, None)
            if lone is None and fresh and replaced is None and len(value) <= self._row_bytes_max:
                self.lone[record_id] = value
                return 1
            head = self.heads[record_id] = Head(None if fresh else self._row_in_base(updates_key(record_id)))
            if lone is not None:
                head.add(lone)
        more = 1 if replaced is None or not head.remove(*replaced) else 0
        if not head.spilled and head.size + len(value) <= self._row_bytes_max:
            head.add(value)
            return more
        spilled = self._spilled.setdefault(record_id, {})
        if replaced is None:
            key = spilled_key(record_id, *position_of(value))
        else:
            key = spilled_replaceable_key(record_id, *replaced)
            if key in spilled or (head.spilled and not fresh and self._base.get(key) is not None):
                more = 0
        head.spilled = True
        spilled[key] = value
        return more

    def forget(self, record_id: int) -> int:
        """Drop the updates of a deleted record that came since the last checkpoint; returns their number."""
        head = self.heads.pop(record_id, None)
        lone = self.lone.pop(record_id, None)
        spilled = self._spilled.pop(record_id, ())
        return (0 if lone is None else 1) + (0 if head is None else len(head.elements)) + len(spilled)

    def tombstone(self, record_id: int, in_row: int | None) -> int:
        """Drop all updates of a deleted record, and tombstone those in the base; returns the number of updates that the
        record had.

        `in_row` is their number if they are all in one row of the base, so that nothing needs to be read; None if that
        is not known.
        """
        key = updates_key(record_id)
        if in_row is None:
            return self._tombstone_unknown(record_id, key)
        self._recent.drop(key)
        self._tombstones.add(key)
        return self.forget(record_id) if record_id in self.heads else in_row

    def _tombstone_unknown(self, record_id: int, key: bytes) -> int:
        row = self._row_in_base(key)
        if row is None:
            return self.forget(record_id)
        in_row, spilled = self._rows_in_base(record_id, row)
        self._recent.drop(key)
        self._tombstones.add(key)
        self._tombstones |= spilled
        if record_id not in self.heads:
            return in_row + len(spilled)
        again = len(spilled & self._spilled.get(record_id, {}).keys())
        return self.forget(record_id) + len(spilled) - again

    def _rows_in_base(self, record_id: int, row: bytes) -> tuple[int, set[bytes]]:
        """The number of updates in the record's row, and the keys of its spilled ones."""
        updates, spilled = updates_in(row)
        if not spilled:
            return len(updates), set()
        prefix = record_key(record_id)
        return len(updates), {key for key, _ in self._base.scan(prefix) if len(key) > len(prefix) + 1}

    def changes(self) -> list[Change]:
        """The net changes of rows. For a record that was deleted and added again, the new row replaces the
        tombstone."""
        lone = self.lone
        ids = sorted(lone)
        rows = rows_of_one_update(ids, [*map(lone.__getitem__, ids)])
        puts = self._puts = dict(zip(updates_keys(ids), rows, strict=True))
        for record_id, head in sorted(self.heads.items()):
            puts[updates_key(record_id)] = head.row(record_id)
            puts.update(self._spilled.get(record_id, {}))
        changes: list[Change] = [(key, None) for key in sorted(self._tombstones) if key not in puts]
        changes.extend(puts.items())
        return changes

    def in_base(self) -> tuple[list[int], dict[int, int], list[int]]:
        """The content of the base once it has the changes: the records with one update, the number of updates in one
        row of those with a head, and the records with spilled updates."""
        spilled = [record_id for record_id, head in self.heads.items() if head.spilled]
        return list(self.lone), {record_id: len(head.elements) for record_id, head in self.heads.items()}, spilled

    def checkpointed(self) -> None:
        """Forget the changes, because the base has them now."""
        self._recent.keep(self._puts)
        self._puts = {}
        self.heads.clear()
        self.lone.clear()
        self._spilled.clear()
        self._tombstones.clear()

    def _row_in_base(self, key: bytes) -> bytes | None:
        row = self._recent.row(key)
        return self._base.get(key) if row is None else row


class _Recent:
    """A bounded memory of rows of updates that were written to the base not long ago, because a read of the base costs
    ten times as much.

    There are two generations. When the younger one is full, the older one is forgotten.
    """

    __slots__ = ("_bytes", "_bytes_max", "_older", "_younger")

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` bounds each generation."""
        self._bytes_max = bytes_max
        self._younger: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        self._bytes = 0

    def row(self, key: bytes) -> bytes | None:
        return self._younger.get(key) or self._older.get(key)

    def keep(self, rows: dict[bytes, bytes]) -> None:
        size = sum(map(len, rows.values())) + len(rows) * _RECENT_OVERHEAD_BYTES
        if self._bytes + size > self._bytes_max:
            self._older, self._younger, self._bytes = self._younger, {}, 0
        if size <= self._bytes_max:
            self._younger.update(rows)
            self._bytes += size
        else:
            for key in rows:
                self.drop(key)

    def drop(self, key: bytes) -> None:
        self._younger.pop(key, None)
        self._older.pop(key, None)
