"""Loading: the state of a snapshot, told to a loader record by record.

Hot path: one scan in key order, in which a record's updates follow it; nothing is kept but the record at hand, so a
load of any size runs in constant memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from google.protobuf.message import DecodeError

from journal.errors import RowError
from journal.fold.rows import Base
from journal.load.counts import Counts, Numbers
from journal.v1.journal_pb2 import Mark, Operation, Position, Record, Transaction, Update, Updates
from journal.wire.ids import SHARD_MASK
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, SKIPPED_PREFIX, TRANSACTION_PREFIX, staged_prefix
from journal.wire.rows import only_update, plain_record, unstaged_row


class LoadedUpdate(NamedTuple):
    """An update of a loaded record; `position` is (offset, index, ordinal) of its last write."""

    kind: int
    data: bytes
    replaceable: bool
    subject: int
    position: tuple[int, int, int]


_new = tuple.__new__  # half of what a NamedTuple's own costs

_NO_KEY = b"\xff"
"""Begins no key."""


class LoadedPart(NamedTuple):
    """How many operations of a prepared transaction a shard holds, and in how many shards it was prepared.

    There are fewer parts than that where an operator had a PREPARE, COMMIT or ROLLBACK of a shard skipped.
    """

    shard: int
    covers: int
    prepared_in: int


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """What a load told."""

    records: int
    updates: int
    prepared: int
    operations: int


class Loader(Protocol):
    """What rebuilds a broker's state. An exception from any method aborts the load, and an activation before READY."""

    def begin(self, marks: Mapping[int, Mark]) -> None:
        """First: the marks of all shards that the state is of."""

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """A record, in order of ids, with its updates in order of their last write."""

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        """A transaction in doubt, in order of tx, with its operations in order within each shard."""

    def complete(self, counts: LoadCounts) -> None:
        """Last: everything was told."""


@runtime_checkable
class FollowingLoader(Loader, Protocol):
    """A loader that a standby keeps warm.

    `begin` and `record` tell the first state that can be read, then `changed` and `deleted` what becomes of it, once
    for a record however often it changed meanwhile. `prepared` and `complete` come when the node activates, with the
    state as it then is; after `complete` the loader is told nothing more. A loader whose copy was lost, or whose
    activation failed, is dropped without another word, and a new one begins.
    """

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """A record that is new or not as it was: the whole of it, as it is now. In no order; may say nothing new."""

    def deleted(self, record_id: int) -> None:
        """A record is gone. One that was never told may be among them."""


class NullLoader:
    """Keeps nothing: for those who only append."""

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None: ...

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None: ...

    def complete(self, counts: LoadCounts) -> None: ...


def load(base: Base, marks: Mapping[int, Mark], loader: Loader) -> LoadCounts:
    """Tell the state of `base`, which is that of `marks`, to `loader`. Raises CountError if it is another one."""
    loader.begin(marks)
    told = load_records(base, loader)
    told.require(base, marks)
    prepared = operations = 0
    for tx, data, staged, _ in prepared_transactions(base):
        loader.prepared(tx, data, staged)
        prepared += 1
        operations += len(staged)
    counts = LoadCounts(sum(told.records), sum(told.updates), prepared, operations)
    loader.complete(counts)
    return counts


def require_counted(base: Base, marks: Mapping[int, Mark]) -> None:
    """Raises CountError if `base` has other rows than `marks` say, RowError if they do not fit together."""
    load_records(base, NullLoader()).require(base, marks)


def counted(base: Base, shard: int) -> Numbers:
    """The numbers of a shard's rows, of which alone `base` has any. Raises RowError if they do not fit together."""
    return load_records(base, NullLoader()).numbers(base, (shard,))[shard]


def load_records(base: Base, loader: Loader) -> Counts:
    """Tell all records; how many, and of how many updates."""
    tell, parse, parse_update, row_of_record = loader.record, plain_record, only_update, RECORD_KEY_BYTES
    counts = Counts()
    records, update_counts, mask = counts.records, counts.updates, SHARD_MASK
    record_id = kind = place = 0
    data, position, key_of_record = b"", (0, 0, 0), _NO_KEY
    updates: list[LoadedUpdate] = []
    for key, value in base.scan(RECORD_TAG):
        if len(key) == row_of_record:
            if updates:
                update_counts[place] += _in_order(updates)
                tell(record_id, kind, data, updates, position)
                updates = []
            elif record_id:
                tell(record_id, kind, data, (), position)
            record_id, kind, data, position = parse(value) or _record(value)
            key_of_record = key
            place = record_id & mask
            records[place] += 1
            continue
        if not key.startswith(key_of_record):
            raise RowError(f"row {key.hex()} holds updates of a record that is not there")
        update = parse_update(value)
        if update is None:
            _take_updates(key, value, updates)
        else:
            updates.append(_new(LoadedUpdate, (update[0], update[1], False, 0, update[2])))
    if record_id:
        update_counts[place] += _in_order(updates)
        tell(record_id, kind, data, updates, position)
    return counts


def _in_order(updates: list[LoadedUpdate]) -> int:
    """Sort a record's updates by their last write; how many there are."""
    if len(updates) > 1:
        updates.sort(key=_position_of)
    return len(updates)


def one_record(
    row: bytes, update_rows: Iterable[tuple[bytes, bytes]]
) -> tuple[int, int, bytes, Sequence[LoadedUpdate], tuple[int, int, int]]:
    """What `Loader.record` is told of a record, from its row and those of its updates (key and value, in any order)."""
    record_id, kind, data, position = plain_record(row) or _record(row)
    updates: list[LoadedUpdate] = []
    for key, value in update_rows:
        update = only_update(value)
        if update is None:
            _take_updates(key, value, updates)
        else:
            kind_of_it, data_of_it, position_of_it = update
            updates.append(_new(LoadedUpdate, (kind_of_it, data_of_it, False, 0, position_of_it)))
    updates.sort(key=_position_of)
    return record_id, kind, data, updates, position


_Record = tuple[int, int, bytes, tuple[int, int, int]]


def _record(value: bytes) -> _Record:
    record = _parsed(Record, value)
    return record.id, record.kind, record.data, _position(record.position)


def _take_updates(key: bytes, value: bytes, updates: list[LoadedUpdate]) -> None:
    if len(key) > RECORD_KEY_BYTES + 1:
        updates.append(_loaded(_parsed(Update, value)))
    else:
        updates.extend([_loaded(update) for update in _parsed(Updates, value).updates])


_Row = TypeVar("_Row", Record, Update, Updates)


def _parsed(message: type[_Row], value: bytes) -> _Row:
    try:
        return message.FromString(value)
    except DecodeError as error:
        raise RowError(f"a row does not parse: {error}") from None


def _loaded(update: Update) -> LoadedUpdate:
    fields = (update.kind, update.data, update.replaceable, update.subject, _position(update.position))
    return _new(LoadedUpdate, fields)


def _position_of(update: LoadedUpdate) -> tuple[int, int, int]:
    return update.position


def _position(at: Position) -> tuple[int, int, int]:
    return at.offset, at.index, at.ordinal


def prepared_transactions(base: Base) -> Iterator[tuple[int, bytes, list[Operation], list[LoadedPart]]]:
    """Prepared transactions in order of tx: data, operations by shard, and their parts.

    Raises RowError for one of which a shard's part is missing, unless something was skipped: then what is left is in
    doubt, and whoever settles it settles that.
    """
    parts: list[Transaction] = []
    for _, value in base.scan(TRANSACTION_PREFIX):
        part = Transaction.FromString(value)
        if parts and parts[0].tx != part.tx:
            yield from _whole(base, parts)
            parts = []
        parts.append(part)
    if parts:
        yield from _whole(base, parts)


def _whole(base: Base, parts: list[Transaction]) -> Iterator[tuple[int, bytes, list[Operation], list[LoadedPart]]]:
    prepared = [part for part in parts if part.prepared]
    if not prepared:
        return
    tx = parts[0].tx
    prepared_in = prepared[0].shards
    if len(prepared) > prepared_in or (len(prepared) < prepared_in and not _has_skipped(base)):
        raise RowError(
            f"transaction {tx} is prepared in {prepared_in} shards and found in {len(prepared)}: rows of it are gone"
        )
    data = b"".join(part.data for part in prepared)
    operations: list[Operation] = []
    for part in prepared:
        found = [unstaged_row(value) for _, value in base.scan(staged_prefix(tx, part.shard))]
        if len(found) != part.staged:
            raise RowError(f"transaction {tx} has {len(found)} of {part.staged} operations in shard {part.shard}")
        operations += found
    yield tx, data, operations, [LoadedPart(part.shard, part.staged, prepared_in) for part in prepared]


def _has_skipped(base: Base) -> bool:
    return next(iter(base.scan(SKIPPED_PREFIX)), None) is not None
