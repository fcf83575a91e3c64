"""Loading: a loader is told the state of a snapshot, record by record.

Hot path: one scan in key order, in which a record's updates follow the record. Only one record is held at a time, so a
load of any size needs the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from journal.errors import RowError
from journal.fold.rows import Base
from journal.load.counts import Counts, Numbers
from journal.v1.journal_pb2 import Mark, Operation, Transaction
from journal.wire.ids import SHARD_MASK
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, SKIPPED_PREFIX, TRANSACTION_PREFIX, staged_prefix
from journal.wire.rows import LoadedUpdate as LoadedUpdate
from journal.wire.rows import record_of, unstaged_row, update_of, updates_in, updates_of

_NO_KEY = b"\xff"
"""A prefix that no key has."""


class LoadedPart(NamedTuple):
    """One shard's part of a prepared transaction: how many operations it holds, and in how many shards the transaction
    was prepared.

    A transaction has fewer parts than `prepared_in` if an operator has skipped a PREPARE, COMMIT or ROLLBACK in a
    shard.
    """

    shard: int
    covers: int
    prepared_in: int


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """The numbers of what a load has told its loader."""

    records: int
    updates: int
    prepared: int
    operations: int


class Loader(Protocol):
    """A loader rebuilds a broker's state from what it is told. An exception from any method aborts the load, and also
    an activation, before READY."""

    def begin(self, marks: Mapping[int, Mark]) -> None:
        """Called first. `marks` has the mark of each shard at which the loaded state stands."""

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """Called for each record, in order of ids, with its updates in order of their last write."""

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        """Called for each transaction in doubt, in order of tx, with its operations in order within each shard."""

    def complete(self, counts: LoadCounts) -> None:
        """Called last, when everything was told."""


@runtime_checkable
class FollowingLoader(Loader, Protocol):
    """A loader that a standby keeps up to date, so that its activation only tells it the last changes.

    `begin` and `record` tell the first state that can be read; `changed` and `deleted` then tell the changes, once for
    each changed record, even if it changed several times meanwhile. `prepared` and `complete` are called when the node
    activates, with the state of that moment; after `complete` nothing more is called. If the copy is lost or the
    activation fails, the loader is dropped without a further call, and a new one begins.
    """

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        """Called for a record that is new or has changed, with its whole present state. The order of records is
        arbitrary, and the state may be the one told before."""

    def deleted(self, record_id: int) -> None:
        """Called for a record that was deleted. It may be a record that the loader was never told."""


class NullLoader:
    """A loader that keeps nothing, for programs that only append."""

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None: ...

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None: ...

    def complete(self, counts: LoadCounts) -> None: ...


def load(base: Base, marks: Mapping[int, Mark], loader: Loader) -> LoadCounts:
    """Tell `loader` the state of `base`, which stands at `marks`. Raises CountError if `base` has other numbers of rows
    than the marks say."""
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
    """Raises CountError if `base` has other numbers of rows than `marks` say, and RowError if an update has no
    record."""
    load_records(base, NullLoader()).require(base, marks)


def counted(base: Base, shard: int) -> Numbers:
    """The numbers of rows of a shard, in a base that has rows of this shard only. Raises RowError if an update has no
    record."""
    return load_records(base, NullLoader()).numbers(base, (shard,))[shard]


def load_records(base: Base, loader: Loader) -> Counts:
    """Tell `loader` all records of `base`; returns the numbers of records and of updates. Raises RowError for an update
    that has no record, or that no row of updates says is there: the row that says so counts as nothing itself."""
    tell, parse, row_of_record, row_of_updates = loader.record, record_of, RECORD_KEY_BYTES, RECORD_KEY_BYTES + 1
    counts = Counts()
    records, update_counts, mask = counts.records, counts.updates, SHARD_MASK
    record_id = kind = place = 0
    data, position, key_of_record = b"", (0, 0, 0), _NO_KEY
    head, announced = b"", _NO_KEY
    updates: list[LoadedUpdate] = []
    for key, value in base.scan(RECORD_TAG):
        if len(key) == row_of_record:
            if updates:
                update_counts[place] += _in_order(updates)
                tell(record_id, kind, data, updates, position)
                updates = []
            elif record_id:
                tell(record_id, kind, data, (), position)
            record_id, kind, data, position = parse(value)
            key_of_record, head = key, b""
            place = record_id & mask
            records[place] += 1
            continue
        if not key.startswith(key_of_record):
            raise RowError(f"row {key.hex()} holds updates of a record that the table does not have")
        if len(key) == row_of_updates:
            head = value
        elif announced is not key_of_record:
            if not (head and updates_in(head)[1]):
                raise RowError(f"row {key.hex()} holds a spilled update, and no row of the record's says it has one")
            announced = key_of_record
        updates += _updates_in(key, value)
    if record_id:
        update_counts[place] += _in_order(updates)
        tell(record_id, kind, data, updates, position)
    return counts


def _in_order(updates: list[LoadedUpdate]) -> int:
    """Sort a record's updates by their last write; returns their number."""
    if len(updates) > 1:
        updates.sort(key=_position_of)
    return len(updates)


def one_record(
    row: bytes, update_rows: Iterable[tuple[bytes, bytes]]
) -> tuple[int, int, bytes, Sequence[LoadedUpdate], tuple[int, int, int]]:
    """The arguments of `Loader.record` for one record, made from its row and the rows of its updates (key and value, in
    any order)."""
    record_id, kind, data, position = record_of(row)
    updates = [update for key, value in update_rows for update in _updates_in(key, value)]
    updates.sort(key=_position_of)
    return record_id, kind, data, updates, position


def _updates_in(key: bytes, value: bytes) -> list[LoadedUpdate]:
    """The updates in a row of a record's updates, or the one in a row of its own."""
    return updates_of(value) if len(key) == RECORD_KEY_BYTES + 1 else [update_of(value)]


def _position_of(update: LoadedUpdate) -> tuple[int, int, int]:
    return update.position


def prepared_transactions(base: Base) -> Iterator[tuple[int, bytes, list[Operation], list[LoadedPart]]]:
    """The prepared transactions in order of tx: data, operations by shard, and parts.

    Raises RowError if a shard's part of one is missing, unless an operator has skipped WAL records: then the parts that
    are left stay in doubt, and an outcome settles only these.
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
