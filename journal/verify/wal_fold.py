"""Folds the committed WAL records of one shard into its state: docs/FORMAT.md, "Frames" and "Operations".

A record that would stop the shard (bytes that are no frame and are not skipped, or missing frames) becomes a finding,
and the fold stops there as the shard does. Memory holds the state, and never all records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from journal.v1.journal_pb2 import (
    ADD,
    COMMIT,
    DELETE,
    MARKER,
    PREPARE,
    ROLLBACK,
    FrameColumns,
    Operation,
    OperationType,
)
from journal.verify.differences import Differences
from journal.verify.frame_check import NotAFrame, parse_frame
from journal.verify.state import (
    Finding,
    MarkState,
    Part,
    Position,
    StagedOperation,
    VerifiedShard,
    fingerprint,
    pack_record,
    pack_update,
    slot,
)

WalRecord = tuple[int, int, bytes | None, bytes | None]
"""A WAL record: offset, timestamp in ms, key, value."""


_NAMES: dict[int, str] = {number: name for name, number in OperationType.items()}


class Happening(NamedTuple):
    """An operation that took effect, with its position; `data` is a fingerprint."""

    type: int
    id: int
    kind: int
    data: bytes
    replaceable: bool
    subject: int
    position: Position


class ShardFold:
    """Folds WAL records, in the order of their offsets, into `state`. If `happened` is given, it is called with each
    operation that takes effect."""

    def __init__(
        self,
        shard: int,
        shards: int,
        journal_uuid: bytes,
        skips: Collection[int] = (),
        *,
        topic: str = "",
        differences: Differences | None = None,
        happened: Callable[[Happening], None] | None = None,
        start: VerifiedShard | None = None,
    ) -> None:
        """`start` is the state to begin with, if it is not that of an empty WAL."""
        self.state = start if start is not None else VerifiedShard(MarkState(shard=shard))
        self.stopped = False
        self._shard = shard
        self._shards = shards
        self._journal_uuid = journal_uuid
        self._skips = frozenset(skips)
        self._topic = topic
        self._differences = differences if differences is not None else Differences(shard)
        self._happened = happened

    def take(self, offset: int, timestamp_ms: int, value: bytes | None) -> None:
        """Fold one WAL record. Once `stopped` is true, records are ignored."""
        mark = self.state.mark
        if self.stopped or offset <= mark.offset:
            return
        if offset in self._skips:
            self._skip(offset, timestamp_ms, value)
            return
        found = self._frame(offset, value)
        if found is None:
            return
        frame, operations = found
        if frame.epoch < mark.epoch:
            mark.offset, mark.timestamp = offset, timestamp_ms
            mark.stale += 1
            return
        if not self._follows(offset, frame, operations):
            return
        for index, operation in enumerate(operations):
            if self._operation(frame, offset, timestamp_ms, index, operation):
                mark.applied += operation.type != MARKER
            else:
                self._reject(operation.type, operation.id, operation.tx, f"{offset}:{index}")
        mark.offset, mark.timestamp = offset, timestamp_ms
        self._advance(frame)

    def _skip(self, offset: int, timestamp_ms: int, value: bytes | None) -> None:
        mark = self.state.mark
        mark.offset, mark.timestamp = offset, timestamp_ms
        mark.skipped += 1
        self._differences.add_skip(offset)
        try:
            frame, _ = parse_frame(value, self._journal_uuid, self._shard, self._shards)
        except NotAFrame:
            return
        if frame.epoch >= mark.epoch and frame.previous == mark.number:
            self._advance(frame)

    def _advance(self, frame: FrameColumns) -> None:
        mark = self.state.mark
        mark.number, mark.group = frame.number, frame.group
        mark.issued = max(mark.issued, frame.issued)
        self.state.whole_group = frame.last

    # ---- is it a frame, and the next one ------------------------------------------------------------------

    def _stop(self, offset: int, reason: str) -> None:
        self.stopped = True
        self.state.findings.append(Finding(self._topic, self._shard, offset, reason))

    def _frame(self, offset: int, value: bytes | None) -> tuple[FrameColumns, list[Operation]] | None:
        try:
            return parse_frame(value, self._journal_uuid, self._shard, self._shards)
        except NotAFrame as error:
            self._stop(offset, str(error))
            return None

    def _follows(self, offset: int, frame: FrameColumns, operations: list[Operation]) -> bool:
        mark = self.state.mark
        if frame.previous != mark.number:
            if mark.number == 0:
                gone = f"what the {frame.previous} frames before it made cannot be computed again"
                self._stop(offset, f"the WAL begins with frame {frame.number}: {gone}")
            else:
                self._stop(offset, f"follows frame {frame.previous}, but the last one was {mark.number}")
            return False
        marks = any(operation.type == MARKER for operation in operations)
        if marks != (frame.epoch > mark.epoch):
            what = "a second marker" if marks else "no marker first"
            self._stop(offset, f"epoch {frame.epoch}, after epoch {mark.epoch}, has {what}")
            return False
        return True

    # ---- operations: True when it took effect --------------------------------------------------------------

    def _reject(self, kind: int, id: int, tx: int, place: str) -> None:
        self.state.mark.rejected += 1
        name = f"{_NAMES[kind]} id {id} tx {tx}"
        self._differences.add("rejected", f"operation {place}", "to be allowed by its state", name)

    def _operation(self, frame: FrameColumns, offset: int, timestamp_ms: int, index: int, operation: Operation) -> bool:
        kind = operation.type
        if kind == MARKER:
            return self._marker(frame, operation)
        if kind == PREPARE:
            return self._prepare(frame, timestamp_ms, operation)
        if kind == COMMIT:
            return self._commit(offset, index, operation)
        if kind == ROLLBACK:
            return self._settle(operation) is not None
        if operation.tx:
            return self._stage(frame, offset, index, operation)
        done = self._effective(staged_operation(operation, offset, index), offset, index, 0)
        if done is not None and self._happened:
            self._happened(done)
        return done is not None

    def _effective(self, staged: StagedOperation, offset: int, index: int, ordinal: int) -> Happening | None:
        state, id, printed = self.state, staged.id, staged.data
        exists = id in state.records
        if exists == (staged.type == ADD):
            return None
        if staged.type == ADD:
            state.records[id] = pack_record(staged.kind, printed, offset, index, ordinal)
            state.mark.records += 1
        elif staged.type == DELETE:
            del state.records[id]
            state.mark.updates -= len(state.updates.pop(id, ()))
            state.mark.records -= 1
        else:
            updates = state.updates.setdefault(id, [])
            if staged.replaceable:
                prefix = slot(staged.kind, staged.subject)
                state.mark.updates -= len(updates)
                updates[:] = [update for update in updates if not update.startswith(prefix)]
                state.mark.updates += len(updates)
            updates.append(
                pack_update(staged.kind, staged.replaceable, staged.subject, printed, offset, index, ordinal)
            )
            state.mark.updates += 1
        return Happening(*staged[:6], (offset, index, ordinal))

    def _stage(self, frame: FrameColumns, offset: int, index: int, operation: Operation) -> bool:
        part = self.state.transactions.get(operation.tx)
        if part is not None and part.prepared:
            return False
        if part is None:
            part = self.state.transactions[operation.tx] = Part(frame.epoch)
        part.staged.append(staged_operation(operation, offset, index))
        part.bytes += len(operation.data)
        self.state.mark.staged += 1
        return True

    def _prepare(self, frame: FrameColumns, timestamp_ms: int, operation: Operation) -> bool:
        part = self.state.transactions.get(operation.tx)
        if part is None:
            if operation.covers != 0:
                return False
            part = self.state.transactions[operation.tx] = Part(frame.epoch)
        elif part.prepared or len(part.staged) != operation.covers:
            return False
        part.prepared = True
        part.data = fingerprint(operation.data)
        part.shards = operation.shards
        part.timestamp = timestamp_ms
        self.state.mark.prepared += 1
        return True

    def _settle(self, operation: Operation) -> Part | None:
        """Take out the part that `operation` settles; None if it may not settle any."""
        part = self.state.transactions.get(operation.tx)
        if part is None or len(part.staged) != operation.covers:
            return None
        del self.state.transactions[operation.tx]
        self.state.mark.staged -= len(part.staged)
        self.state.mark.prepared -= part.prepared
        return part

    def _commit(self, offset: int, index: int, operation: Operation) -> bool:
        part = self._settle(operation)
        if part is None:
            return False
        done: dict[int, Happening] = {}
        born: dict[int, list[int]] = {}  # ordinals of what this transaction did to each record that it added
        for ordinal, staged in enumerate(part.staged, 1):
            happening = self._effective(staged, offset, index, ordinal)
            if happening is None:
                self._reject(staged.type, staged.id, operation.tx, f"{offset}:{index}:{ordinal}")
                continue
            self.state.mark.applied += 1
            done[ordinal] = happening
            if staged.type == ADD:
                born[staged.id] = [ordinal]
            elif staged.id in born:
                born[staged.id].append(ordinal)
                if staged.type == DELETE:
                    for unseen in born.pop(staged.id):
                        del done[unseen]
        if self._happened:
            for happening in done.values():
                self._happened(happening)
        return True

    def _marker(self, frame: FrameColumns, operation: Operation) -> bool:
        mark = self.state.mark
        mark.epoch, mark.node, mark.nonce = frame.epoch, frame.node, operation.data
        for tx in [tx for tx, part in self.state.transactions.items() if not part.prepared]:
            count = len(self.state.transactions.pop(tx).staged)
            mark.staged -= count
            mark.dropped += count
        return True


def staged_operation(operation: Operation, offset: int, index: int) -> StagedOperation:
    """An operation as its transaction's part keeps it."""
    return StagedOperation(
        operation.type,
        operation.id,
        operation.kind,
        fingerprint(operation.data),
        operation.replaceable,
        operation.subject,
        (offset, index, 0),
    )


def fold_shard(
    shard: int,
    shards: int,
    journal_uuid: bytes,
    records: Iterable[WalRecord],
    skips: Collection[int] = (),
    *,
    until: int | None = None,
    topic: str = "",
    differences: Differences | None = None,
    happened: Callable[[Happening], None] | None = None,
) -> VerifiedShard:
    """The fold of `records` up to and including offset `until`; of all of them if `until` is None."""
    fold = ShardFold(shard, shards, journal_uuid, skips, topic=topic, differences=differences, happened=happened)
    for offset, timestamp_ms, _key, value in records:
        if until is not None and offset > until:
            break
        fold.take(offset, timestamp_ms, value)
        if fold.stopped:
            break
    return fold.state
