"""The engine, which defines what the journal means: it folds frames of the WAL into table rows, without I/O, clock or
randomness.

One `Fold` is one shard between two checkpoints: the rows as of the last mark (`Base`), what later frames changed, and
the mark. The fold is total: an operation that its state does not allow changes nothing and is counted in
`mark.rejected`. docs/FORMAT.md gives, for every operation, its precondition, its effect, and what counts as having
happened.

Hot path: the fold handles neighbouring operations of one type with one call.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.errors import FrameError, GapError
from journal.fold.records import RecordTable
from journal.fold.rows import Added, Base, Change, Happened
from journal.fold.staged import PartTable, StagedPart
from journal.fold.updates import RECENT_BYTES_MAX
from journal.limits import ID_MAX, OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import (
    ADD,
    COMMIT,
    DELETE,
    PREPARE,
    ROLLBACK,
    UPDATE,
    Mark,
    Operation,
    Skipped,
)
from journal.wire.frames import Frame, FrameRun
from journal.wire.keys import mark_key, skipped_key
from journal.wire.operations import IN_TRANSACTION
from journal.wire.rows import mark_name, record_rows, update_rows


class Fold:
    """A shard's state since its last checkpoint. One thread owns it."""

    def __init__(
        self,
        mark: Mark,
        base: Base,
        *,
        updates_row_bytes_max: int,
        tell: bool = False,
        tell_added: frozenset[int] = frozenset(),
        highest: int = ID_MAX,
        recent_bytes_max: int = RECENT_BYTES_MAX,
    ) -> None:
        """Start from `mark` and the rows that belong to it. With `tell` the fold collects what happened, for agents.
        With `tell_added` it collects the added records of these kinds, for routes.

        No record in the base has an id above `highest`, so none of these is read. Rows of updates that went to the base
        not long ago are remembered, up to `recent_bytes_max`.
        """
        self.mark = Mark()
        self.mark.CopyFrom(mark)
        self._previous = mark_name(mark.SerializeToString()) if mark.offset >= 0 else 0
        self._records = RecordTable(
            self.mark,
            base,
            highest,
            updates_row_bytes_max=updates_row_bytes_max,
            recent_bytes_max=recent_bytes_max,
        )
        self._parts = PartTable(base, self.mark.shard)
        self._skipped: list[Skipped] = []
        self._boundary = True
        self.settled_bytes = 0
        """Bytes of staged operations that outcomes have settled since the last checkpoint. Their sizes are those
        counted at staging, and `checkpoint_bytes_max` bounds them too."""
        self._told: list[Happened] | None = [] if tell else None
        self._told_kinds = tell_added
        self._told_added: list[Added] = []
        """Values of added records, without their messages: one operation that is kept would keep its whole frame in
        memory."""

    @property
    def at_group_boundary(self) -> bool:
        """Whether the last frame applied was the last of its group in this shard. A checkpoint may be taken only
        then."""
        return self._boundary

    def apply(self, offset: int, timestamp: int, frame: Frame) -> bool:
        """Apply the frame at a WAL offset. Returns False if the mark already covers it.

        `frame` comes from `decode_frame`, and `timestamp` is the WAL record's. Raises GapError for a frame that does
        not follow the mark's last one, and FrameError for an epoch that begins without a marker; then nothing of the
        frame was applied.
        """
        mark = self.mark
        if offset <= mark.offset:
            return False
        if frame.epoch < mark.epoch:
            mark.stale += 1
            mark.offset, mark.timestamp = offset, timestamp
            return True
        if frame.previous != mark.number:
            raise GapError(f"frame {frame.number} follows frame {frame.previous}, and frame {mark.number} was the last")
        nonce = frame.nonce
        if (nonce != b"") != (frame.epoch > mark.epoch):
            what = "a second marker" if nonce else "a frame without a marker before it"
            raise FrameError(f"{what} in epoch {frame.epoch}, after epoch {mark.epoch}")
        if nonce:
            self._begin_epoch(frame.epoch, frame.node, nonce)
        else:
            self._apply_operations(offset, timestamp, frame)
        mark.offset, mark.timestamp, mark.number, mark.group = offset, timestamp, frame.number, frame.group
        if frame.issued > mark.issued:
            mark.issued = frame.issued
        self._boundary = frame.last
        return True

    def skip(self, row: Skipped, timestamp: int, frame: Frame | None) -> bool:
        """Leave out a WAL record because an operator says so; `row` keeps it. Returns False if the mark already covers
        it.

        `frame` is the record's frame, None if it does not parse as one. If the frame follows the mark's last one, the
        mark takes its number, so that the next frame follows, and its highest issued sequence, so that no id is issued
        twice. Any other record (no frame, a stale one, one out of sequence) leaves the mark's last frame as it was.
        """
        mark = self.mark
        if row.offset <= mark.offset:
            return False
        mark.skipped += 1
        mark.offset, mark.timestamp = row.offset, timestamp
        if frame is not None and frame.epoch >= mark.epoch and frame.previous == mark.number:
            mark.number, mark.group = frame.number, frame.group
            if frame.issued > mark.issued:
                mark.issued = frame.issued
            self._boundary = frame.last
        self._skipped.append(row)
        return True

    def _begin_epoch(self, epoch: int, node: str, nonce: bytes) -> None:
        mark = self.mark
        mark.epoch, mark.node, mark.nonce = epoch, node, nonce
        dropped = self._parts.drop_unprepared()
        mark.staged -= dropped
        mark.dropped += dropped

    def _apply_operations(self, offset: int, timestamp: int, frame: Frame) -> None:
        applied = 0
        for run in frame.runs():
            if run.rank == IN_TRANSACTION:
                for index in range(run.begin, run.end):
                    applied += self._apply_transactional(frame.operation(index), frame.epoch, offset, index, timestamp)
            else:
                applied += self._apply_run(offset, frame, run)
        self.mark.applied += applied
        self.mark.rejected += frame.count - applied

    def _apply_run(self, offset: int, frame: Frame, run: FrameRun) -> int:
        """Apply neighbouring operations of one type; returns how many were allowed."""
        if self._told is None and not (run.rank == ADD and self._told_kinds):
            return self._apply_each(offset, frame, run)
        applied = 0
        for index in range(run.begin, run.end):
            if not self._apply_each(offset, frame, FrameRun(run.rank, index, index + 1)):
                continue
            applied += 1
            if self._told is not None:
                self._told.append((frame.operation(index), offset, index, 0))
            if run.rank == ADD and frame.kinds[index] in self._told_kinds:
                self._told_added.append((frame.ids[index], frame.kinds[index], frame.data[index], offset))
        return applied

    def _apply_each(self, offset: int, frame: Frame, run: FrameRun) -> int:
        table, (rank, begin, end) = self._records, run
        ids = frame.ids[begin:end]
        if rank == ADD:
            came = table.add_run(ids, record_rows(frame, begin, end, offset))
            self.mark.records += came
            return came
        if rank == UPDATE:
            if not any(frame.replaceable[begin:end]):
                return table.keep_updates(ids, update_rows(frame, begin, end, offset))
            return sum(table.update(frame.operation(index), offset, index, 0) for index in range(begin, end))
        went = table.delete_each(ids)
        self.mark.records -= went
        return went

    # ---- transactions ------------------------------------------------------------------------------------------

    def _apply_transactional(self, op: Operation, epoch: int, offset: int, index: int, timestamp: int) -> int:
        """Apply an operation of a transaction; returns 1 if it was allowed, else 0. A COMMIT counts as one operation;
        the operations that it settles are counted separately."""
        mark, parts = self.mark, self._parts
        if op.type == PREPARE:
            done = parts.prepare(op, epoch, timestamp)
            mark.prepared += done
        elif op.type in (COMMIT, ROLLBACK):
            part = parts.settle(op.tx, op.covers)
            done = part is not None
            if part is not None:
                mark.prepared -= part.header.prepared
                mark.staged -= part.header.staged
                self.settled_bytes += part.header.bytes + part.header.staged * OPERATION_OVERHEAD_BYTES
                if op.type == COMMIT:
                    self._take_effect(part, offset, index)
                parts.forget(part)
        else:
            done = parts.stage(op, epoch, offset, index)
            mark.staged += done
        return int(done)

    def _take_effect(self, part: StagedPart, offset: int, index: int) -> None:
        """Apply the operations of a committed transaction. Agents are not told of a record that the transaction both
        adds and deletes."""
        table = self._records
        effects: list[Happened] = []
        unborn: set[int] = set()
        born: set[int] = set()
        records = 0
        for ordinal, op in enumerate(self._parts.operations(part), start=1):
            record_id, kind = op.id, op.type
            if kind == ADD:
                if not table.add(op, offset, index, ordinal):
                    continue
                born.add(record_id)
                records += 1
            elif kind == UPDATE:
                if not table.update(op, offset, index, ordinal):
                    continue
            else:
                if not table.delete_each((record_id,)):
                    continue
                records -= 1
                if record_id in born:
                    unborn.add(record_id)
            effects.append((op, offset, index, ordinal))
        self.mark.records += records
        self.mark.applied += len(effects)
        self.mark.rejected += part.header.staged - len(effects)
        if unborn:
            effects = _without_unborn(effects)
        if self._told is not None:
            self._told.extend(effects)
        if self._told_kinds:
            added = [op for op, *_ in effects if op.type == ADD and op.kind in self._told_kinds]
            self._told_added.extend((op.id, op.kind, op.data, offset) for op in added)

    # ---- what a checkpoint takes -------------------------------------------------------------------------------

    def happened(self) -> list[Happened]:
        """The operations that took effect since the last checkpoint, in WAL order. Empty unless the fold was created
        with `tell`."""
        return list(self._told or ())

    def added(self) -> list[Added]:
        """The records of the kinds in `tell_added` that were added since the last checkpoint, in WAL order. They
        include records that were deleted again, except those that one transaction both added and deleted."""
        return list(self._told_added)

    def changes(self) -> list[Change]:
        """The net changes of rows since the last checkpoint; the mark is the last one.

        Tombstones are in the order of their keys, and so are updates, because a store writes neighbouring keys faster.
        A second call before `checkpointed` gives the same changes.
        """
        changes = self._records.changes()
        changes.extend(self._parts.changes())
        changes.extend((skipped_key(row.shard, row.offset), row.SerializeToString()) for row in self._skipped)
        self.mark.previous = self._previous
        changes.append((mark_key(self.mark.shard), self.mark.SerializeToString()))
        return changes

    def checkpointed(self) -> None:
        """Forget the changes, because the base holds `changes()` now. The mark and the headers of transactions stay."""
        self._previous = mark_name(self.mark.SerializeToString())
        self._records.checkpointed()
        self._parts.checkpointed()
        self._skipped.clear()
        self.settled_bytes = 0
        self._told_added.clear()
        if self._told is not None:
            self._told.clear()

    def transaction_parts(self) -> Iterator[StagedPart]:
        """The parts of open and prepared transactions in this shard."""
        return self._parts.parts()


def _without_unborn(effects: list[Happened]) -> list[Happened]:
    """The effects without those on records that the same transaction both adds and deletes."""
    kept: list[Happened] = []
    since_add: dict[int, list[int]] = {}
    dropped: set[int] = set()
    for place, effect in enumerate(effects):
        record_id, kind = effect[0].id, effect[0].type
        if kind == ADD:
            since_add[record_id] = [place]
        elif record_id in since_add:
            since_add[record_id].append(place)
            if kind == DELETE:
                dropped.update(since_add.pop(record_id))
    kept.extend(effect for place, effect in enumerate(effects) if place not in dropped)
    return kept
