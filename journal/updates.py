"""Updates of records inside the engine: which rows hold them, and which rows a delete has to tombstone.

A record's updates share one row (`Head`) while they fit `updates_row_bytes_max`; what does not fit goes to a row of its
own (spilled), keyed by position, or by kind and subject if it is replaceable. So a delete needs one read to know its
tombstones and scans only for a record that spilled, a record with a thousand updates is never rewritten as a whole, and
a replaceable update of a spilled record is one put.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from journal.v1.journal_pb2 import Operation, Updates
from journal.wire.keys import record_key, spilled_key, spilled_replaceable_key, updates_key
from journal.wire.rows import position_bytes

if TYPE_CHECKING:
    from journal.engine import Base, Change

_ELEMENT_TAG = b"\x12"
_SPILLED_FLAG = b"\x18\x01"


def _length(size: int) -> bytes:
    out = bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


class Head:
    """The updates row of one record, as (kind, subject or None, element bytes) in order of last write."""

    __slots__ = ("elements", "size", "spilled")

    def __init__(self, row: bytes | None) -> None:
        self.elements: list[tuple[int, int | None, bytes]] = []
        self.size = 0
        self.spilled = False
        if row is not None:
            message = Updates.FromString(row)
            self.spilled = message.spilled
            for update in message.updates:
                subject = update.subject if update.replaceable else None
                self.elements.append((update.kind, subject, update.SerializeToString()))
            self.size = sum(len(element) for _, _, element in self.elements)

    def remove(self, kind: int, subject: int) -> None:
        """Take out the replaceable update of that kind and subject, if it is here."""
        for place, (has_kind, has_subject, element) in enumerate(self.elements):
            if has_kind == kind and has_subject == subject:
                del self.elements[place]
                self.size -= len(element)
                return

    def row(self, record_id: int) -> bytes:
        parts = [Updates(id=record_id).SerializeToString()]
        for _, _, element in self.elements:
            parts += (_ELEMENT_TAG, _length(len(element)), element)
        if self.spilled:
            parts.append(_SPILLED_FLAG)
        return b"".join(parts)


class UpdateTable:
    """Update rows that the frames since the last checkpoint changed."""

    def __init__(self, base: Base, row_bytes_max: int) -> None:
        self._base = base
        self._row_bytes_max = row_bytes_max
        self._heads: dict[int, Head] = {}
        self._spilled: dict[int, dict[bytes, bytes]] = {}
        self._tombstones: set[bytes] = set()

    def put(self, op: Operation, offset: int, index: int, ordinal: int, *, fresh: bool) -> None:
        """Keep an update of a record that exists; `fresh` if the base cannot have a row of its updates."""
        record_id = op.id
        head = self._heads.get(record_id)
        if head is None:
            head = self._heads[record_id] = Head(None if fresh else self._base.get(updates_key(record_id)))
        if op.replaceable:
            head.remove(op.kind, op.subject)
        value = op.SerializeToString() + position_bytes(offset, index, ordinal)
        if not head.spilled and head.size + len(value) <= self._row_bytes_max:
            head.elements.append((op.kind, op.subject if op.replaceable else None, value))
            head.size += len(value)
            return
        head.spilled = True
        if op.replaceable:
            key = spilled_replaceable_key(record_id, op.kind, op.subject)
        else:
            key = spilled_key(record_id, offset, index, ordinal)
        self._spilled.setdefault(record_id, {})[key] = value

    def drop(self, record_id: int, *, fresh: bool, compact: bool = False) -> None:
        """The record is deleted: drop what the overlay has of it, and tombstone the rows that the base has.

        `fresh` if it cannot have any; `compact` if none can be a spilled one, so that nothing needs to be read.
        """
        self._heads.pop(record_id, None)
        self._spilled.pop(record_id, None)
        if fresh:
            return
        key = updates_key(record_id)
        if compact:
            self._tombstones.add(key)
            return
        row = self._base.get(key)
        if row is None:
            return
        self._tombstones.add(key)
        if Updates.FromString(row).spilled:
            prefix = record_key(record_id)
            self._tombstones.update(key for key, _ in self._base.scan(prefix) if len(key) > len(prefix))

    def changes(self) -> Iterable[Change]:
        """Net changes of rows; a put wins over the tombstone of a record that was deleted and added again."""
        puts: dict[bytes, bytes] = {}
        for record_id, head in self._heads.items():
            puts[updates_key(record_id)] = head.row(record_id)
            puts.update(self._spilled.get(record_id, {}))
        yield from ((key, None) for key in sorted(self._tombstones) if key not in puts)
        yield from puts.items()

    def in_base(self) -> tuple[list[int], list[int]]:
        """Once the base has the changes: records that have an updates row there, and those that have spilled ones."""
        return list(self._heads), [record_id for record_id, head in self._heads.items() if head.spilled]

    def clear(self) -> None:
        self._heads.clear()
        self._spilled.clear()
        self._tombstones.clear()
