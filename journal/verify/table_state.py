"""Reads a shard's state from the rows of its table partition: docs/FORMAT.md, "Table rows".

Rows may come in the order of the partition, where a later row replaces an earlier one with its key, and a tombstone
deletes it. Or they come in any order, each key once. Values are parsed as they come, and only their packed form is
kept. A row that is not what its key says is a difference, and so is a row of no record or transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import fields

from google.protobuf.message import DecodeError

from journal.limits import KIND_MAX
from journal.v1.journal_pb2 import (
    ADD,
    DELETE,
    UPDATE,
    Mark,
    Record,
    Skipped,
    Staged,
    Transaction,
    Update,
    Updates,
)
from journal.v1.journal_pb2 import Position as PositionMessage
from journal.verify.differences import Differences
from journal.verify.state import (
    MarkState,
    Part,
    StagedOperation,
    VerifiedShard,
    fingerprint,
    pack_record,
    pack_update,
    shard_of,
    unpack_update,
)
from journal.words import counted

_ID = struct.Struct(">Q")
_PLACE = struct.Struct(">QII")
_SLOT = struct.Struct(">BQ")
_TRANSACTION = struct.Struct(">QH")
_STAGED = struct.Struct(">QHQI")
_MARK = struct.Struct(">H")
_SKIPPED = struct.Struct(">HQ")

_HEAD, _SPILLED, _SPILLED_REPLACEABLE = 1, 2, 3


class _RowFault(ValueError):
    """Why a row is not what its key says. It becomes a difference."""


class TableState:
    """The rows of one table partition, taken one by one. It has an attribute for each type of row, and three
    counters."""

    def __init__(self, shard: int, shards: int, differences: Differences) -> None:
        self.skipped: dict[int, str] = {}
        """Offsets that an operator had skipped, with the reasons in their rows."""
        self.rows = 0
        """Number of rows taken, tombstones included."""
        self.rows_after_mark = 0
        """Number of rows taken since the last mark. In the order of the partition, these belong to no state yet."""
        self._shard = shard
        self._shards = shards
        self._differences = differences
        self._mark: MarkState | None = None
        self._records: dict[int, bytes] = {}
        self._heads: dict[int, tuple[bool, list[bytes]]] = {}
        self._spilled: dict[int, dict[bytes, bytes]] = {}
        self._parts: dict[int, tuple[int, Part]] = {}
        self._staged: dict[int, dict[tuple[int, int], StagedOperation]] = {}
        self._take: dict[bytes, Callable[[bytes, bytes | None], None]] = {
            b"r": self._record_row,
            b"t": self._transaction_row,
            b"x": self._staged_row,
            b"m": self._mark_row,
            b"s": self._skipped_row,
        }

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take one row. A faulty row is a difference and no part of the state."""
        self.rows += 1
        self.rows_after_mark += 1
        row = self._take.get(key[:1])
        try:
            if row is None:
                raise _RowFault("no row has such a key")
            row(key[1:], value)
        except (_RowFault, struct.error, DecodeError) as fault:
            self._differences.add("row", f"key {key.hex()}", "what its key says", str(fault))

    # ---- rows --------------------------------------------------------------------------------------------

    def _record_row(self, rest: bytes, value: bytes | None) -> None:
        (id,) = _ID.unpack(rest[:8])
        if len(rest) > 8:
            self._updates_row(id, rest[8], rest[9:], value)
            return
        if value is None:
            self._records.pop(id, None)
            return
        row = Record.FromString(value)
        if row.type != ADD or row.id != id or row.kind > KIND_MAX:
            raise _RowFault(f"a record with id {row.id}, type {row.type}, kind {row.kind}")
        self._check_shard(id)
        place = row.position
        self._records[id] = pack_record(row.kind, fingerprint(row.data), place.offset, place.index, place.ordinal)

    def _updates_row(self, id: int, tag: int, rest: bytes, value: bytes | None) -> None:
        if tag == _HEAD and not rest:
            if value is None:
                self._heads.pop(id, None)
                return
            head = Updates.FromString(value)
            if head.id != id or any(update.id not in (0, id) for update in head.updates):
                raise _RowFault(f"updates of id {head.id}")
            self._heads[id] = head.spilled, [_packed(update) for update in head.updates]
        elif tag in (_SPILLED, _SPILLED_REPLACEABLE):
            suffix = bytes((tag,)) + rest
            expected = (_PLACE if tag == _SPILLED else _SLOT).unpack(rest)
            if value is None:
                spilled = self._spilled.get(id, {})
                spilled.pop(suffix, None)
                if not spilled:
                    self._spilled.pop(id, None)
                return
            update = Update.FromString(value)
            place = update.position
            said = (update.kind, update.subject) if update.replaceable else (place.offset, place.index, place.ordinal)
            if update.id != id or update.replaceable != (tag == _SPILLED_REPLACEABLE) or said != expected:
                raise _RowFault(f"an update of id {update.id}, {said}")
            self._spilled.setdefault(id, {})[suffix] = _packed(update)
        else:
            raise _RowFault("no row has such a key")

    def _transaction_row(self, rest: bytes, value: bytes | None) -> None:
        tx, shard = _TRANSACTION.unpack(rest)
        self._check_own(shard)
        if value is None:
            self._parts.pop(tx, None)
            return
        row = Transaction.FromString(value)
        if (row.tx, row.shard) != (tx, shard):
            raise _RowFault(f"a part of tx {row.tx} in shard {row.shard}")
        part = Part(row.epoch, row.prepared, fingerprint(row.data), row.shards, row.timestamp, row.bytes)
        self._parts[tx] = row.staged, part

    def _staged_row(self, rest: bytes, value: bytes | None) -> None:
        tx, shard, offset, index = _STAGED.unpack(rest)
        self._check_own(shard)
        if value is None:
            staged = self._staged.get(tx, {})
            staged.pop((offset, index), None)
            if not staged:
                self._staged.pop(tx, None)
            return
        row = Staged.FromString(value)
        said = (row.tx, row.shard, row.position.offset, row.position.index, row.position.ordinal)
        if said != (tx, shard, offset, index, 0) or row.type not in (ADD, UPDATE, DELETE):
            raise _RowFault(f"a staged operation of type {row.type}, (tx, shard, position) {said}")
        self._check_shard(row.id)
        self._staged.setdefault(tx, {})[offset, index] = StagedOperation(
            row.type, row.id, row.kind, fingerprint(row.data), row.replaceable, row.subject, (offset, index, 0)
        )

    def _mark_row(self, rest: bytes, value: bytes | None) -> None:
        (shard,) = _MARK.unpack(rest)
        self._check_own(shard)
        if value is None:
            raise _RowFault("a mark's tombstone")
        row = Mark.FromString(value)
        if row.shard != shard:
            raise _RowFault(f"a mark of shard {row.shard}")
        self._mark = MarkState(**{field.name: getattr(row, field.name) for field in fields(MarkState)})
        self.rows_after_mark = 0

    def _skipped_row(self, rest: bytes, value: bytes | None) -> None:
        shard, offset = _SKIPPED.unpack(rest)
        self._check_own(shard)
        if value is None:
            self.skipped.pop(offset, None)
            return
        row = Skipped.FromString(value)
        if (row.shard, row.offset) != (shard, offset):
            raise _RowFault(f"a skipped row of shard {row.shard}, offset {row.offset}")
        self.skipped[offset] = row.reason

    def _check_shard(self, id: int) -> None:
        if id < 1 or shard_of(id, self._shards) != self._shard:
            raise _RowFault(f"id {id} is not of this shard")

    def _check_own(self, shard: int) -> None:
        if shard != self._shard:
            raise _RowFault(f"of shard {shard}")

    # ---- the state ---------------------------------------------------------------------------------------

    def finish(self) -> VerifiedShard:
        """The state of the rows taken. It takes over the dictionaries, so no more rows can be taken."""
        state = VerifiedShard(self._mark or MarkState(shard=self._shard), records=self._records)
        self._join_updates(state)
        self._join_transactions(state)
        return state

    def _join_updates(self, state: VerifiedShard) -> None:
        for id in {*self._heads, *self._spilled}:
            spilled_flag, updates = self._heads.pop(id, (False, []))
            rows = self._spilled.pop(id, {})
            if id not in state.records:
                self._differences.add(
                    "row", f"id {id}", "a record", f"{counted(len(updates) + len(rows), 'update')} of none"
                )
                continue
            if rows and not spilled_flag:
                self._differences.add(
                    "row", f"id {id}", "`spilled` in its Updates row", counted(len(rows), "spilled row")
                )
            if rows:
                updates = sorted([*updates, *rows.values()], key=lambda packed: unpack_update(packed).position)
            if updates:
                state.updates[id] = updates

    def _join_transactions(self, state: VerifiedShard) -> None:
        for tx, (count, part) in self._parts.items():
            staged = self._staged.pop(tx, {})
            part.staged = [staged[place] for place in sorted(staged)]
            if count != len(staged):
                self._differences.add("row", f"tx {tx}", f"{count} staged rows", f"{len(staged)}")
            state.transactions[tx] = part
        for tx, staged in self._staged.items():
            self._differences.add(
                "row", f"tx {tx}", "a transaction row", f"{counted(len(staged), 'staged row')} of none"
            )


def _packed(update: Update) -> bytes:
    if update.type != UPDATE or update.kind > KIND_MAX:
        raise _RowFault(f"an update of type {update.type}, kind {update.kind}")
    place: PositionMessage = update.position
    return pack_update(
        update.kind,
        update.replaceable,
        update.subject,
        fingerprint(update.data),
        place.offset,
        place.index,
        place.ordinal,
    )


def read_table(
    shard: int, shards: int, rows: Iterable[tuple[bytes, bytes | None]], differences: Differences
) -> tuple[VerifiedShard, TableState]:
    """The state of the rows of one table partition, and the reader, which knows the skipped offsets and counts."""
    table = TableState(shard, shards, differences)
    for key, value in rows:
        table.take(key, value)
    return table.finish(), table
