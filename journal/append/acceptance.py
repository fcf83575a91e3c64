"""Acceptance: whether the active node may append an operation, and what that appends. Pure; one owner at a time.

Keeps the ids of live records as accepted so far (a bitmap, about two bytes a record), the open and prepared
transactions, and their locks. A refusal raises a CallerError, FullError or TypeError, and changes nothing.

A transaction is buffered here until it commits; then it becomes plain operations of one group, without those records
that it both added and deleted. One that outgrows its bounds, and every one that is prepared, is staged in the WAL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from journal.append.arguments import (
    check_data,
    check_deleted_records,
    check_new_records,
    check_operation,
    check_tx,
    require_type,
)
from journal.append.locks import Locks
from journal.append.operations import (
    NOTHING_STAGED,
    AnyOperation,
    Append,
    DeletedRecords,
    NewRecords,
    PlainOperation,
    Staged,
)
from journal.errors import (
    FullError,
    InvalidOperationError,
    LockedError,
    RecordExistsError,
    RecordMissingError,
    TransactionPreparedError,
    TransactionUnknownError,
)
from journal.limits import ID_MAX, KIND_MAX, OPERATION_OVERHEAD_BYTES, SUBJECT_MAX, Limits
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, PREPARE, ROLLBACK, UPDATE, OperationType
from journal.wire.ids import home_shard_of, shard_of


@dataclass(slots=True)
class OpenTransaction:
    """A transaction as the active node knows it."""

    tx: int
    buffered: list[Append] = field(default_factory=list)
    added: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    covers: dict[int, int] = field(default_factory=dict)
    operations: int = 0
    bytes: int = 0
    staged: bool = False
    prepared: bool = False


class Acceptance:
    """What may be appended next. The caller appends what each method returns, in that order, or calls none."""

    def __init__(self, shards: int, limits: Limits, live: BitMap64 | None = None) -> None:
        """`live` has the ids of the records there are, if that is known; it is the acceptance's from now on."""
        self._shards = shards
        self._limits = limits
        self._data_bytes_max = limits.data_bytes_max
        self._live = BitMap64() if live is None else live
        self._locks = Locks()
        self._open: dict[int, OpenTransaction] = {}
        self._staged_operations = 0
        self._staged_bytes = 0
        self._buffered_bytes = 0

    # ---- what a load tells ---------------------------------------------------------------------------------------

    def load_records(self, record_ids: Iterable[int]) -> None:
        self._live.update(record_ids)

    def load_prepared(self, tx: int, operations: Iterable[Append], covers: dict[int, int]) -> None:
        """A prepared transaction that the load found: its locks are taken again."""
        opened = OpenTransaction(tx, staged=True, prepared=True, covers=dict(covers))
        for op in operations:
            self._take(op._replace(tx=tx), opened)
            opened.operations += 1
            opened.bytes += op.size
        self._staged_operations += opened.operations
        self._staged_bytes += opened.bytes
        self._open[tx] = opened

    # ---- what a caller sees --------------------------------------------------------------------------------------

    def __contains__(self, record_id: int) -> bool:
        return record_id in self._live

    @property
    def records(self) -> int:
        return len(self._live)

    def is_taken(self, record_id: int) -> bool:
        """Whether a record has that id, or a transaction holds it, and the record may yet be there. Raises what refuses
        every operation on such an id."""
        self.check_operation(record_id, 0, b"", 0)
        if record_id in self._live:
            return True
        try:
            self._locks.check_record(record_id, 0)
        except LockedError:
            return True
        return False

    def is_open(self, tx: int) -> bool:
        return tx in self._open

    def is_prepared(self, tx: int) -> bool:
        opened = self._open.get(tx)
        return opened is not None and opened.prepared

    def prepared(self) -> list[int]:
        return sorted(tx for tx, opened in self._open.items() if opened.prepared)

    # ---- records, outside of transactions ------------------------------------------------------------------------

    def check_operation(
        self, record_id: int, kind: int, data: bytes, subject: int, replaceable: bool = False, type_: int = UPDATE
    ) -> None:
        """Raises TypeError, or InvalidOperationError for arguments that no frame can carry."""
        check_operation(type_, record_id, kind, data, replaceable, subject, self._data_bytes_max)

    def add(self, record_id: int, kind: int = 0, data: bytes = b"") -> None:
        """Hot path: what can be wrong is looked at once, and only then asked what it is."""
        if (
            type(data) is not bytes
            or type(kind) is not int
            or type(record_id) is not int
            or len(data) > self._data_bytes_max
            or not (0 < record_id <= ID_MAX and 0 <= kind <= KIND_MAX)
        ):
            self.check_operation(record_id, kind, data, 0)
        if self._open:
            self._add(record_id)
            return
        try:
            self._live.add_checked(record_id)
        except KeyError:
            raise _exists(record_id) from None

    def _add(self, record_id: int) -> None:
        if self._open and record_id not in self._live:
            self._locks.check_record(record_id, 0)
        try:
            self._live.add_checked(record_id)
        except KeyError:
            raise _exists(record_id) from None

    def update(self, record_id: int, kind: int, subject: int, data: bytes = b"", replaceable: bool = False) -> None:
        self.check_operation(record_id, kind, data, subject, replaceable)
        self._update(record_id, kind, subject)

    def _update(self, record_id: int, kind: int, subject: int) -> None:
        if record_id not in self._live:
            raise RecordMissingError(f"no record {record_id}")
        if self._open:
            self._locks.check_update(record_id, kind, subject, 0)

    def delete(self, record_id: int) -> None:
        if type(record_id) is not int or not 0 < record_id <= ID_MAX:
            self.check_operation(record_id, 0, b"", 0)
        self._delete(record_id)

    def _delete(self, record_id: int) -> None:
        if record_id not in self._live:
            raise RecordMissingError(f"no record {record_id}")
        if self._open:
            self._locks.check_record(record_id, 0)
        self._live.discard(record_id)

    def add_with_update(self, record_id: int, kind: int, data: bytes, update_kind: int, subject: int) -> None:
        """An add, and an update of it that has no data. Hot path, as `add`."""
        if (
            type(data) is not bytes
            or not (type(record_id) is type(kind) is type(update_kind) is type(subject) is int)
            or len(data) > self._data_bytes_max
            or not (0 < record_id <= ID_MAX and 0 <= kind <= KIND_MAX)
            or not (0 <= update_kind <= KIND_MAX and 0 <= subject <= SUBJECT_MAX)
        ):
            self.check_operation(record_id, kind, data, 0)
            self.check_operation(record_id, update_kind, b"", subject)
        self._add(record_id)

    def delete_with_update(self, record_id: int, kind: int, data: bytes, subject: int) -> None:
        """An update, and the delete of its record, for which nobody may hold a lock on an update either."""
        if (
            data
            or type(data) is not bytes
            or not (type(record_id) is type(kind) is type(subject) is int)
            or not (0 < record_id <= ID_MAX and 0 <= kind <= KIND_MAX and 0 <= subject <= SUBJECT_MAX)
        ):
            self.check_operation(record_id, kind, data, subject)
        self._delete(record_id)

    def all_of(self, operations: Sequence[AnyOperation]) -> None:
        """Accept operations that belong together, in order: all or, with the error of the first refused one, none."""
        accepted = 0
        try:
            for operation in operations:
                if isinstance(operation, NewRecords):
                    self._add_all(operation)
                elif isinstance(operation, DeletedRecords):
                    self._delete_all(operation)
                else:
                    type_, record_id, kind, data, replaceable, subject = operation
                    check_operation(type_, record_id, kind, data, replaceable, subject, self._data_bytes_max)
                    if type_ == ADD:
                        self._add(record_id)
                    elif type_ == UPDATE:
                        self._update(record_id, kind, subject)
                    else:
                        self._delete(record_id)
                accepted += 1
        except BaseException:
            for operation in reversed(operations[:accepted]):
                self._revert(operation)
            raise

    def _add_all(self, records: NewRecords) -> None:
        """All of them, or none. (`|=` of a bitmap walks over all that is live.)"""
        ids = records.ids
        check_new_records(records.kind, ids, records.data, records.update_kind, records.subject, self._data_bytes_max)
        new = BitMap64(ids)
        if len(new) < len(ids):
            raise InvalidOperationError("new records, of which some are the same")
        if not new.isdisjoint(self._live):
            raise RecordExistsError(f"record {(new & self._live).min()} exists")
        for record_id in ids if self._open else ():
            self._locks.check_record(record_id, 0)
        self._live.update(ids)

    def _delete_all(self, records: DeletedRecords) -> None:
        """All of them, or none."""
        ids, live = records.ids, self._live
        check_deleted_records(ids, records.kind, records.data, records.subject, self._data_bytes_max)
        gone = BitMap64(ids)
        if len(gone) < len(ids):
            raise InvalidOperationError("records to delete, of which some are the same")
        if not gone.issubset(live):
            raise RecordMissingError(f"no record {(gone - live).min()}")
        for record_id in ids if self._open else ():
            self._locks.check_record(record_id, 0)
        discard = live.discard
        for record_id in ids:
            discard(record_id)

    def _revert(self, operation: AnyOperation) -> None:
        if isinstance(operation, NewRecords):
            self.take_back(operation.ids)
        elif isinstance(operation, DeletedRecords):
            self._live.update(operation.ids)
        elif operation[0] == ADD:
            self._live.discard(operation[1])
        elif operation[0] == DELETE:
            self._live.add(operation[1])

    def take_back(self, added: Iterable[int]) -> None:
        """Records that were accepted, and are known not to be in the journal. Nobody else has appended to them."""
        self._live -= BitMap64(added)

    # ---- transactions --------------------------------------------------------------------------------------------

    def begin(self, tx: int) -> OpenTransaction:
        """The open transaction `tx`, begun now if it is not. Raises TransactionPreparedError if it is prepared."""
        check_tx(tx)
        opened = self._open.get(tx)
        if opened is None:
            if len(self._open) >= self._limits.transactions_max:
                raise FullError(f"{len(self._open)} transactions are open: settle some (transactions_max)")
            opened = self._open[tx] = OpenTransaction(tx)
        elif opened.prepared:
            raise TransactionPreparedError(f"transaction {tx} is prepared: commit it or roll it back")
        return opened

    def operate(self, op: Append) -> list[Append]:
        """An add, update or delete with a tx: what is appended now (nothing while the transaction is buffered)."""
        return self.operate_all((op,))

    def operate_all(self, ops: Sequence[Append]) -> list[Append]:
        """Operations of one transaction that belong together: all or, with the error of the first refused one, none."""
        tx = ops[0].tx
        known = self.is_open(tx)
        opened = self.begin(tx)
        try:
            there: dict[int, bool] = {}
            for op in ops:
                self._check(op, opened, there)
            self._check_bounds(opened, ops)
        except BaseException:
            if not known:
                del self._open[tx]
            raise
        for op in ops:
            self._take(op, opened)
            opened.operations += 1
            opened.bytes += op.size
        limits = self._limits
        if opened.staged:
            return self._stage(opened, ops)
        opened.buffered += ops
        self._buffered_bytes += sum([op.size for op in ops])
        if (
            opened.operations > limits.transaction_buffer_operations_max
            or opened.bytes > limits.transaction_buffer_bytes_max
            or self._buffered_bytes > limits.transaction_buffers_total_bytes_max
        ):
            return self._stage_buffered(opened)
        return []

    def prepare(self, tx: int, data: bytes, then: Sequence[PlainOperation] = ()) -> list[Append]:
        """Everything staged, and a PREPARE for every shard touched and the home shard; then plain operations. Begins
        `tx` if need be."""
        check_data(data, self._limits.data_bytes_max)
        known = self.is_open(tx)
        opened = self.begin(tx)
        try:
            self._check_bounds(opened, ())
            self.all_of(then)
        except BaseException:
            if not known:
                del self._open[tx]
            raise
        appends = [] if opened.staged else self._stage_buffered(opened)
        home = home_shard_of(tx, self._shards)
        opened.covers.setdefault(home, 0)
        for shard, covers in sorted(opened.covers.items()):
            payload = data if shard == home else b""
            appends.append(Append(shard, PREPARE, data=payload, tx=tx, covers=covers, shards=len(opened.covers)))
        opened.prepared = True
        return appends + self._plain(then)

    def commit(self, tx: int, then: Sequence[PlainOperation] = ()) -> list[Append]:
        """What settles `tx` by commit: its operations, or a COMMIT for every shard touched; then plain operations."""
        require_type("tx", tx, int)
        self._check_then(tx, then)
        opened = self._settled(tx)
        live = self._live
        for record_id in opened.deleted:
            live.discard(record_id)
        live.update(opened.added)
        for type_, record_id, *_ in then:
            if type_ == ADD:
                live.add(record_id)
            elif type_ == DELETE:
                live.discard(record_id)
        appends = self._plain(then)
        if opened.staged:
            commits = [Append(shard, COMMIT, tx=tx, covers=covers) for shard, covers in sorted(opened.covers.items())]
            return commits + appends
        return _without_cancelled([op._replace(tx=0) for op in opened.buffered] + appends)

    def _check_then(self, tx: int, then: Sequence[PlainOperation]) -> None:
        """Raises for an operation that could not follow the commit of `tx`."""
        opened = self._open.get(tx)
        there: dict[int, bool] = {}
        if opened is not None:
            there |= dict.fromkeys(opened.deleted, False) | dict.fromkeys(opened.added, True)
        for type_, record_id, kind, data, replaceable, subject in then:
            self.check_operation(record_id, kind, data, subject, replaceable, type_)
            exists = there.get(record_id, record_id in self._live)
            if type_ == ADD and exists:
                raise RecordExistsError(f"record {record_id} exists once transaction {tx} is committed")
            if type_ != ADD and not exists:
                raise RecordMissingError(f"no record {record_id} once transaction {tx} is committed")
            if type_ == UPDATE:
                self._locks.check_update(record_id, kind, subject, tx)
            else:
                self._locks.check_record(record_id, tx)
                there[record_id] = type_ == ADD

    def rollback(self, tx: int) -> list[Append]:
        """What settles `tx` by rollback: nothing, or a ROLLBACK for every shard touched."""
        require_type("tx", tx, int)
        opened = self._settled(tx)
        if not opened.staged:
            return []
        return [Append(shard, ROLLBACK, tx=tx, covers=covers) for shard, covers in sorted(opened.covers.items())]

    def is_empty(self, tx: int) -> bool:
        """Whether `tx` is open and has no operation. Raises TransactionUnknownError."""
        opened = self._open.get(tx)
        if opened is None:
            raise TransactionUnknownError(f"no transaction {tx} is open")
        return not opened.operations

    def size_of(self, tx: int) -> tuple[int, int]:
        """Upper bounds of what preparing or committing `tx` appends now: operations and bytes."""
        opened = self._open.get(tx)
        if opened is None:
            return self._shards, self._shards * OPERATION_OVERHEAD_BYTES
        settling = len(opened.covers) + self._shards
        buffered = 0 if opened.staged else opened.bytes
        return len(opened.buffered) + settling, buffered + settling * OPERATION_OVERHEAD_BYTES

    def rollback_size_of(self, tx: int) -> tuple[int, int]:
        """The same of rolling it back: what is buffered is never appended."""
        opened = self._open.get(tx)
        settling = 0 if opened is None else len(opened.covers)
        return settling, settling * OPERATION_OVERHEAD_BYTES

    def settled_by(self, tx: int) -> Staged:
        """What committing `tx`, or rolling it back, settles."""
        opened = self._open.get(tx)
        return NOTHING_STAGED if opened is None or not opened.staged else Staged(opened.operations, opened.bytes)

    # ---- inside --------------------------------------------------------------------------------------------------

    def _plain(self, operations: Sequence[PlainOperation]) -> list[Append]:
        """Operations outside of transactions, each in its record's shard."""
        return [Append(shard_of(operation[1], self._shards), *operation) for operation in operations]

    def _check(self, op: Append, opened: OpenTransaction, there: dict[int, bool]) -> None:
        """`there` has what operations before it, not taken yet, make of records, and gets what this one does."""
        exists = there.get(op.id, op.id in opened.added or (op.id in self._live and op.id not in opened.deleted))
        if op.type == ADD and exists:
            raise RecordExistsError(f"record {op.id} exists")
        if op.type != ADD and not exists:
            raise RecordMissingError(f"no record {op.id} in transaction {op.tx}")
        if op.type == UPDATE:
            self._locks.check_update(op.id, op.kind, op.subject, op.tx)
        else:
            self._locks.check_record(op.id, op.tx)
            there[op.id] = op.type == ADD

    def _check_bounds(self, opened: OpenTransaction, ops: Sequence[Append]) -> None:
        limits, operations, size = self._limits, len(ops), sum([op.size for op in ops])
        if (
            opened.operations + operations > limits.staged_operations_max
            or opened.bytes + size > limits.staged_bytes_max
        ):
            raise FullError(
                f"transaction {opened.tx} is at its limit: commit or roll back (staged_operations_max, _bytes_max)"
            )
        newly = operations if opened.staged else opened.operations + operations
        newly_bytes = size if opened.staged else opened.bytes + size
        if newly and (
            self._staged_operations + newly > limits.staged_total_operations_max
            or self._staged_bytes + newly_bytes > limits.staged_total_bytes_max
        ):
            raise FullError(
                "staged transactions are at their limit: settle some (staged_total_operations_max, _bytes_max)"
            )

    def _take(self, op: Append, opened: OpenTransaction) -> None:
        if op.type == UPDATE:
            self._locks.take_update(op.id, op.kind, op.subject, op.tx)
            return
        self._locks.take_record(op.id, op.tx)
        if op.type == ADD:
            opened.added.add(op.id)
            return
        opened.added.discard(op.id)
        if op.id in self._live:
            opened.deleted.add(op.id)

    def _stage(self, opened: OpenTransaction, ops: Sequence[Append]) -> list[Append]:
        for op in ops:
            opened.covers[op.shard] = opened.covers.get(op.shard, 0) + 1
            self._staged_operations += 1
            self._staged_bytes += op.size
        return list(ops)

    def _stage_buffered(self, opened: OpenTransaction) -> list[Append]:
        opened.staged = True
        self._buffered_bytes -= opened.bytes
        ops, opened.buffered = opened.buffered, []
        return self._stage(opened, ops)

    def _settled(self, tx: int) -> OpenTransaction:
        opened = self._open.pop(tx, None)
        if opened is None:
            raise TransactionUnknownError(f"no transaction {tx} is open or prepared")
        self._locks.release(tx)
        if opened.staged:
            self._staged_operations -= opened.operations
            self._staged_bytes -= opened.bytes
        else:
            self._buffered_bytes -= opened.bytes
        return opened


def _exists(record_id: int) -> RecordExistsError:
    return RecordExistsError(f"record {record_id} exists")


def record_append(
    shards: int,
    kind_of: OperationType.ValueType,
    record_id: int,
    *,
    kind: int = 0,
    data: bytes = b"",
    **more: int | bool,
) -> Append:
    """An add, update or delete, in its record's shard."""
    return Append(shard_of(record_id, shards), kind_of, record_id, kind, data, **more)  # type: ignore[arg-type]


def _without_cancelled(ops: list[Append]) -> list[Append]:
    """Operations less those of records that the same transaction both adds and deletes, from add to delete."""
    since_add: dict[int, list[int]] = {}
    cancelled: set[int] = set()
    for place, op in enumerate(ops):
        if op.type == ADD:
            since_add[op.id] = [place]
        elif op.id in since_add:
            since_add[op.id].append(place)
            if op.type == DELETE:
                cancelled.update(since_add.pop(op.id))
    return [op for place, op in enumerate(ops) if place not in cancelled]
