"""Folds a WAL that was trimmed. The fold starts from the state of the tables at the trim, of which a digest was
recorded.

That state itself was not kept. Its records that still exist are in the present tables, with positions at or before the
trim's mark. The others were deleted since, by operations that are still in the WAL. So the fold begins with the records
that still exist. If an operation names an unknown record, the fold assumes that the record is from before the trim. At
the tables' mark it then holds exactly what they should hold. The number of records, and all that came after the trim's
mark, are checked as usual. The content of records from before the trim is checked by the digest, as long as all of them
exist.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b

from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Transaction, Trim
from journal.verify.differences import Differences
from journal.verify.frame_check import NotAFrame, parse_frame
from journal.verify.state import (
    MarkState,
    Part,
    StagedOperation,
    VerifiedShard,
    fingerprint,
    unpack_record,
    unpack_update,
)
from journal.verify.wal_fold import Happening, ShardFold, staged_operation

DIGEST_BYTES = 32


def records_digest(records: Iterable[tuple[int, bytes, Sequence[bytes]]]) -> bytes:
    """A digest of a shard's packed records, in order of their ids, with their updates: see docs/FORMAT.md, "Trims"."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for id, record, updates in records:
        digest.update(id.to_bytes(8, "big") + len(updates).to_bytes(4, "big"))
        for packed in (record, *updates):
            digest.update(len(packed).to_bytes(4, "big") + packed)
    return digest.digest()


def state_digest(state: VerifiedShard) -> bytes:
    """The digest of a state's records."""
    return records_digest((id, state.records[id], state.updates.get(id, [])) for id in sorted(state.records))


@dataclass(frozen=True, slots=True)
class TrimmedBase:
    """What is known of a shard's state at the mark of its newest trim."""

    mark: MarkState
    digest: bytes
    transactions: tuple[Transaction, ...]
    told: str
    """A text for people: who trimmed, when, and what guarantees the state."""

    @classmethod
    def of(cls, trim: Trim, told: str) -> TrimmedBase:
        mark = MarkState(**{field.name: getattr(trim.mark, field.name) for field in fields(MarkState)})
        return cls(mark, trim.digest, tuple(trim.transactions), told)

    @property
    def begins(self) -> str:
        """A text for people: where a check begins."""
        return f"checked from offset {self.mark.offset + 1} on: {self.told}"


def base_of(trim: Trim | None, wal_start: int) -> TrimmedBase | None:
    """The start of a check of a shard whose WAL begins at `wal_start`; None if that is its first frame, or if no trim
    of ours has cut it off."""
    if trim is None or wal_start == 0:
        return None
    moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(trim.timestamp / 1000))
    vouched = "an archive has what was deleted" if trim.archived else "what was deleted agreed with the tables"
    return TrimmedBase.of(
        trim, f"the WAL was trimmed to offset {trim.offset} by {trim.operator} at {moment}; {vouched}"
    )


def cannot_check(base: TrimmedBase, records: int) -> str:
    """Says what cannot be checked because records of the base were deleted or changed, so that the digest no longer
    applies."""
    what = f"what the {records} records from before offset {base.mark.offset + 1} hold"
    return f"{what}: the frames that made them were trimmed"


def _survivors(tables: VerifiedShard, base: TrimmedBase) -> VerifiedShard:
    """The part of the base's state that the tables still have."""
    until = base.mark.offset
    state = VerifiedShard(MarkState(**{field.name: getattr(base.mark, field.name) for field in fields(MarkState)}))
    for id, packed in tables.records.items():
        if unpack_record(packed).position[0] > until:
            continue
        state.records[id] = packed
        updates = [each for each in tables.updates.get(id, ()) if unpack_update(each).position[0] <= until]
        if updates:
            state.updates[id] = updates
    for row in base.transactions:
        state.transactions[row.tx] = Part(
            row.epoch, row.prepared, fingerprint(row.data), row.shards, row.timestamp, row.bytes
        )
    return state


class BasedFold(ShardFold):
    """Folds the records of a trimmed WAL. Of the records up to the base's mark, only the operations that its
    transactions have staged are taken."""

    def __init__(
        self,
        shard: int,
        shards: int,
        journal_uuid: bytes,
        skips: Collection[int],
        base: TrimmedBase,
        tables: VerifiedShard,
        *,
        topic: str,
        differences: Differences,
    ) -> None:
        super().__init__(
            shard, shards, journal_uuid, skips, topic=topic, differences=differences, start=_survivors(tables, base)
        )
        self._base = base
        self._place = (shard, shards, journal_uuid)
        self._found = differences
        self._staged_due = {row.tx: (row.epoch, row.staged) for row in base.transactions}
        self._gone: set[int] = set()
        """Records that were deleted after the base."""
        self._updated: dict[int, int] = {}
        """Records of the base that were updated later, with the offset of the update, and that the tables do not have.
        The WAL must delete them."""
        self._untouched = len(self.state.records), state_digest(self.state)
        self._all_there = True
        """Whether no record of the base has been deleted or replaced."""
        self._exact = False

    def take(self, offset: int, timestamp_ms: int, value: bytes | None) -> None:
        if offset > self._base.mark.offset:
            super().take(offset, timestamp_ms, value)
        elif offset not in self._skips:
            self._stage_again(offset, value)

    def _stage_again(self, offset: int, value: bytes | None) -> None:
        try:
            frame, operations = parse_frame(value, self._place[2], *self._place[:2])
        except NotAFrame:
            return
        for index, operation in enumerate(operations):
            epoch, count = self._staged_due.get(operation.tx, (0, 0))
            if operation.type in (ADD, UPDATE, DELETE) and count and frame.epoch >= epoch:
                staged = self.state.transactions[operation.tx].staged
                staged.append(staged_operation(operation, offset, index))
                del staged[:-count]  # earlier operations belong to an older transaction with the same number

    def meet_tables(self) -> str:
        """Compare with the tables at their mark: count records, and compare the digest if it still applies. Returns a
        text about what cannot be checked.

        From here on the state is known in full.
        """
        base, state = self._base, self.state
        self._exact = True
        for id, offset in self._updated.items():
            self._found.add("record", f"id {id}", f"a record, which offset {offset} updates", "none")
        state.mark.updates = sum(map(len, state.updates.values()))
        if len(state.records) != state.mark.records:
            self._found.add("record", "how many", str(state.mark.records), str(len(state.records)))
        kept, digest = self._untouched
        if not self._all_there:
            return cannot_check(base, kept)
        if digest != base.digest:
            self._found.add("digest", f"at offset {base.mark.offset}", base.digest.hex(), digest.hex())
        return ""

    def _effective(self, staged: StagedOperation, offset: int, index: int, ordinal: int) -> Happening | None:
        state, id = self.state, staged.id
        if self._exact:
            return super()._effective(staged, offset, index, ordinal)
        known = id in state.records or id in self._gone
        if staged.type == ADD and id in self._updated:
            return None
        if known or staged.type == ADD:
            of_base = id in state.records and unpack_record(state.records[id]).position[0] <= self._base.mark.offset
            done = super()._effective(staged, offset, index, ordinal)
            if done is not None:
                self._all_there &= not (of_base and (staged.type == DELETE or staged.replaceable))
                (self._gone.add if staged.type == DELETE else self._gone.discard)(id)
            return done
        self._all_there = False
        if staged.type == DELETE:
            state.mark.records -= 1
            self._gone.add(id)
            self._updated.pop(id, None)
        else:
            self._updated[id] = offset
        return Happening(*staged[:6], (offset, index, ordinal))


def note_transactions(
    rows: Iterable[tuple[bytes, bytes | None]], into: dict[bytes, bytes]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Passes the rows of a table on, and keeps the newest rows of transactions."""
    for key, value in rows:
        if key[:1] == b"t":
            if value is None:
                into.pop(key, None)
            else:
                into[key] = value
        yield key, value
