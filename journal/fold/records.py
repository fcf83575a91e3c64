"""A shard's records and their updates inside the engine: which exist, and which rows a checkpoint changes. Pure.

Hot path: ids are dictionary keys, and rows are bytes, which the garbage collector need not follow. A record that is
added and deleted between two checkpoints costs no row, and a record that this fold itself put into the base costs no
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from journal.fold.known_records import Presence
from journal.fold.rows import Base, Change
from journal.fold.updates import UpdateTable
from journal.v1.journal_pb2 import Mark, Operation
from journal.wire.keys import record_key
from journal.wire.rows import row_of


class RecordTable:
    """The records of one shard: those in the base, as changed since the last checkpoint. It counts updates in the
    mark."""

    def __init__(
        self, mark: Mark, base: Base, highest: int, *, updates_row_bytes_max: int, recent_bytes_max: int
    ) -> None:
        """No record in the base has an id above `highest`, so higher ids are not looked up there. See `Fold` for the
        bounds."""
        self._mark = mark
        self._base = base
        self._added: dict[int, bytes] = {}
        """Rows of records that were added. They are bytes, because the garbage collector would spend more time on
        messages than all other work takes."""
        self._deleted: set[int] = set()
        self._present = Presence(highest)
        self._top = highest
        """The highest record id in the base and among the added records."""
        self._updates = UpdateTable(base, updates_row_bytes_max, recent_bytes_max)

    def add_run(self, ids: Sequence[int], rows: Sequence[bytes]) -> int:
        """Add the records that do not exist; returns their number. Mostly all are new, because ids increase."""
        added = self._added
        if min(ids) > self._top:
            added.update(zip(ids, rows, strict=True))
            self._top = max(ids)
            return len(ids)
        done = 0
        for record_id, row in zip(ids, rows, strict=True):
            if record_id not in added and not self._in_base(record_id):
                added[record_id] = row
                done += 1
        self._top = max(self._top, max(ids))
        return done

    def _in_base(self, record_id: int) -> bool:
        """Whether the record is in the base and has not been deleted since."""
        if record_id in self._deleted or record_id > self._present.highest:
            return False
        return record_id in self._present.records or self._base.get(record_key(record_id)) is not None

    def add(self, op: Operation, offset: int, index: int, ordinal: int) -> bool:
        """Add a record; returns False if it exists already."""
        record_id = op.id
        if record_id > self._top:
            self._top = record_id
        elif record_id in self._added or self._in_base(record_id):
            return False
        self._added[record_id] = row_of(op, offset, index, ordinal)
        return True

    def update(self, op: Operation, offset: int, index: int, ordinal: int) -> bool:
        """Keep an update; returns False if its record does not exist."""
        row = row_of(op, offset, index, ordinal)
        return self.keep_updates((op.id,), (row,), (op.kind, op.subject) if op.replaceable else None) > 0

    def keep_updates(self, ids: Iterable[int], rows: Iterable[bytes], replaced: tuple[int, int] | None = None) -> int:
        """Keep the updates of records that exist; returns their number. `replaced` is kind and subject of a replaceable
        update, which must be the only update of the call."""
        added, deleted, present, put = self._added, self._deleted, self._present, self._updates.put
        highest, records, updated = present.highest, present.records, present.updated
        done = more = 0
        for record_id, row in zip(ids, rows, strict=True):
            if record_id in added:
                fresh = True
            elif record_id > highest or record_id in deleted:
                continue
            elif record_id in records:
                fresh = record_id not in updated
            elif self._base.get(record_key(record_id)) is not None:
                fresh = False
            else:
                continue
            more += put(record_id, row, fresh, replaced)
            done += 1
        self._mark.updates += more
        return done

    def delete_each(self, ids: Iterable[int]) -> int:
        """Delete the records that exist; returns their number."""
        added, deleted, present, updates = self._added, self._deleted, self._present, self._updates
        highest, records, updated, others = present.highest, present.records, present.updated, present.others
        lone, heads = updates.lone, updates.heads
        done = gone = 0
        for record_id in ids:
            if record_id in added:
                del added[record_id]
                if record_id in lone or record_id in heads:
                    gone += updates.forget(record_id)
                done += 1
                continue
            if record_id > highest or record_id in deleted:
                continue
            is_known = record_id in records
            if not is_known and self._base.get(record_key(record_id)) is None:
                continue
            deleted.add(record_id)
            if not is_known:
                gone += updates.tombstone(record_id, None)
            elif record_id in updated:
                gone += updates.tombstone(record_id, present.updates_of(record_id) if record_id in others else 1)
            elif record_id in lone or record_id in heads:
                gone += updates.forget(record_id)
            done += 1
        self._mark.updates -= gone
        return done

    def changes(self) -> list[Change]:
        """Net changes of rows since the last checkpoint: tombstones of records, new records, and then updates."""
        added = self._added
        gone = self._deleted - added.keys() if added else self._deleted
        changes: list[Change] = list(zip(map(record_key, sorted(gone)), repeat(None), strict=False))
        changes.extend(zip(map(record_key, added), added.values(), strict=True))
        changes.extend(self._updates.changes())
        return changes

    def checkpointed(self) -> None:
        """Forget the changes, because the base holds `changes()` now."""
        self._present.checkpointed(self._added, self._deleted, *self._updates.in_base())
        self._top = self._present.highest
        self._added.clear()
        self._deleted.clear()
        self._updates.checkpointed()
