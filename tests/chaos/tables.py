"""A shard's state as its table rows show it, after docs/FORMAT.md: decoded here, with the messages alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Mark, Position, Record, Staged, Transaction, Update, Updates
from tests.chaos.fold import Effect, Part, Place, RecordState, ShardState
from tests.chaos.history import digest

_NAMES = {ADD: "add", UPDATE: "update", DELETE: "delete"}
_ID_END = 9


def table_state(rows: Iterable[tuple[bytes, bytes | None]]) -> tuple[ShardState, Mark]:
    """The state of the last mark, and the mark; rows behind it belong to no state yet."""
    kept: dict[bytes, bytes | None] = {}
    waiting: dict[bytes, bytes | None] = {}
    mark = Mark(offset=-1)
    for key, value in rows:
        waiting[key] = value
        if key[:1] == b"m" and value is not None:
            mark = Mark.FromString(value)
            kept |= waiting
            waiting = {}
    live = {key: value for key, value in kept.items() if value is not None}
    return ShardState(_records(live), _parts(live)), mark


def _records(rows: dict[bytes, bytes]) -> dict[int, RecordState]:
    records: dict[int, RecordState] = {}
    updates: dict[int, list[Update]] = defaultdict(list)
    for key, value in rows.items():
        if key[:1] != b"r":
            continue
        record_id = int.from_bytes(key[1:_ID_END], "big")
        if len(key) == _ID_END:
            record = Record.FromString(value)
            records[record_id] = RecordState(record.kind, digest(record.data), _place(record.position))
        elif key[_ID_END:] == b"\x01":
            updates[record_id] += Updates.FromString(value).updates
        else:
            updates[record_id].append(Update.FromString(value))
    for record_id, its in updates.items():
        # updates without a record would show in no load; they are a difference all the same
        record_state = records.setdefault(record_id, RecordState(-1, "updates without a record", (-1, 0, 0)))
        record_state.updates = [
            Effect("update", record_id, one.kind, digest(one.data), one.replaceable, one.subject)
            for one in sorted(its, key=lambda one: _place(one.position))
        ]
    return records


def _parts(rows: dict[bytes, bytes]) -> dict[int, Part]:
    parts: dict[int, Part] = {}
    staged: dict[int, list[Staged]] = defaultdict(list)
    for key, value in rows.items():
        if key[:1] == b"t":
            transaction = Transaction.FromString(value)
            name = digest(transaction.data) if transaction.data else ""
            parts[transaction.tx] = Part(prepared=transaction.prepared, name=name)
        elif key[:1] == b"x":
            one = Staged.FromString(value)
            staged[one.tx].append(one)
    for tx, its in staged.items():
        parts.setdefault(tx, Part(name="staged without a transaction")).staged = [
            _staged_effect(one) for one in sorted(its, key=lambda one: _place(one.position))
        ]
    return parts


def _staged_effect(one: Staged) -> Effect:
    if one.type == DELETE:
        return Effect("delete", one.id)
    return Effect(_NAMES[one.type], one.id, one.kind, digest(one.data), one.replaceable, one.subject)


def _place(at: Position) -> Place:
    return at.offset, at.index, at.ordinal
