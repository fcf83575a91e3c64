"""Whether the active node may append an operation inside a transaction, and what it then appends. Pure; one owner.

A transaction is buffered here until it commits. Then it becomes plain operations of one group, without those of records
that it both added and deleted. A transaction that outgrows its bounds, and every one that is prepared, is staged in the
WAL. A refusal raises a CallerError, FullError or TypeError, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from journal.append.arguments import check_data, check_tx, require_type
from journal.append.locks import Locks
from journal.append.operations import NOTHING, Amount, Append, PlainOperation
from journal.append.record_acceptance import RecordAcceptance
from journal.errors import (
    FullError,
    RecordExistsError,
    RecordMissingError,
    TransactionPreparedError,
    TransactionUnknownError,
)
from journal.limits import OPERATION_OVERHEAD_BYTES, Limits
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, PREPARE, ROLLBACK, UPDATE, OperationType
from journal.wire.ids import home_shard_of, shard_of
from journal.words import counted_are


@dataclass(slots=True)
class OpenTransaction:
    """A transaction as the active node knows it, from its first operation to its settlement."""

    tx: int
    buffered: list[Append] = field(default_factory=list)
    """Operations that are not staged yet."""
    added: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    covers: dict[int, int] = field(default_factory=dict)
    """The number of its staged operations by shard."""
    operations: int = 0
    bytes: int = 0
    staged: bool = False
    prepared: bool = False


class TransactionAcceptance:
    """Accepts operations inside transactions, and settlements. The caller must append what each method returns, in that
    order."""

    def __init__(self, shards: int, limits: Limits, locks: Locks, records: RecordAcceptance) -> None:
        """`locks` is also used by `records`."""
        self._shards = shards
        self._limits = limits
        self._locks = locks
        self._records = records
        self._open: dict[int, OpenTransaction] = {}
        self._staged = NOTHING
        self._buffered_bytes = 0

    def load_prepared(self, tx: int, operations: Iterable[Append], covers: dict[int, int]) -> None:
        """Open a prepared transaction that a load found, and take its locks again."""
        opened = OpenTransaction(tx, staged=True, prepared=True, covers=dict(covers))
        for op in operations:
            self._take(op._replace(tx=tx), opened)
        self._count_staged(opened.operations, opened.bytes)
        self._open[tx] = opened

    # ---- for callers ------------------------------------------------------------------------------------------------

    def is_open(self, tx: int) -> bool:
        return tx in self._open

    def is_prepared(self, tx: int) -> bool:
        opened = self._open.get(tx)
        return opened is not None and opened.prepared

    def prepared(self) -> list[int]:
        return sorted(tx for tx, opened in self._open.items() if opened.prepared)

    def is_empty(self, tx: int) -> bool:
        """Whether `tx` is open and has no operation. Raises TransactionUnknownError."""
        opened = self._open.get(tx)
        if opened is None:
            raise TransactionUnknownError(f"no transaction {tx} is open")
        return not opened.operations

    def size_of(self, tx: int) -> Amount:
        """An upper bound of the operations and bytes that preparing or committing `tx` appends now."""
        opened = self._open.get(tx)
        if opened is None:
            return Amount(self._shards, self._shards * OPERATION_OVERHEAD_BYTES)
        settling = len(opened.covers) + self._shards
        buffered = 0 if opened.staged else opened.bytes
        return Amount(len(opened.buffered) + settling, buffered + settling * OPERATION_OVERHEAD_BYTES)

    def rollback_size_of(self, tx: int) -> Amount:
        """An upper bound of the operations and bytes that rolling `tx` back appends. Buffered operations are not
        appended."""
        opened = self._open.get(tx)
        settling = 0 if opened is None else len(opened.covers)
        return Amount(settling, settling * OPERATION_OVERHEAD_BYTES)

    def settled_by(self, tx: int) -> Amount:
        """The staged operations that a commit or rollback of `tx` settles."""
        opened = self._open.get(tx)
        return NOTHING if opened is None or not opened.staged else Amount(opened.operations, opened.bytes)

    # ---- operations ----------------------------------------------------------------------------------------------

    def begin(self, tx: int) -> OpenTransaction:
        """The open transaction `tx`, which begins now if it is not open. Raises TransactionPreparedError if it is
        prepared."""
        check_tx(tx)
        opened = self._open.get(tx)
        if opened is None:
            if len(self._open) >= self._limits.transactions_max:
                raise FullError(f"{counted_are(len(self._open), 'transaction')} open: settle some (transactions_max)")
            opened = self._open[tx] = OpenTransaction(tx)
        elif opened.prepared:
            raise TransactionPreparedError(f"transaction {tx} is prepared: commit it or roll it back")
        return opened

    def operate(self, ops: Sequence[Append]) -> list[Append]:
        """Accept operations of one transaction that belong together: all of them, or none with the error of the first
        one refused. Returns the operations to append now: none while the transaction is buffered."""
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

    # ---- settlement ----------------------------------------------------------------------------------------------

    def prepare(self, tx: int, data: bytes, then: Sequence[PlainOperation] = ()) -> list[Append]:
        """Prepare `tx`, which begins now if it is not open. Returns its operations that are not staged yet, a PREPARE
        for every shard that it touches and for its home shard, and plain operations after them."""
        check_data(data, self._limits.data_bytes_max)
        known = self.is_open(tx)
        opened = self.begin(tx)
        try:
            self._check_bounds(opened, ())
            self._records.all_of(then)
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
        """Commit `tx`. Returns its buffered operations, or a COMMIT for every shard that it touches, and plain
        operations after them."""
        require_type("tx", tx, int)
        self._check_then(tx, then)
        opened = self._settled(tx)
        live = self._records.live
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
            return _settling(COMMIT, opened) + appends
        return _without_cancelled([op._replace(tx=0) for op in opened.buffered] + appends)

    def rollback(self, tx: int) -> list[Append]:
        """Roll `tx` back. Returns nothing if it was buffered, else a ROLLBACK for every shard that it touches."""
        require_type("tx", tx, int)
        opened = self._settled(tx)
        return _settling(ROLLBACK, opened) if opened.staged else []

    def _settled(self, tx: int) -> OpenTransaction:
        opened = self._open.pop(tx, None)
        if opened is None:
            raise TransactionUnknownError(f"no transaction {tx} is open or prepared")
        self._locks.release(tx)
        if opened.staged:
            self._count_staged(-opened.operations, -opened.bytes)
        else:
            self._buffered_bytes -= opened.bytes
        return opened

    def _plain(self, operations: Sequence[PlainOperation]) -> list[Append]:
        """The operations as plain ones, each in its record's shard."""
        return [Append(shard_of(operation[1], self._shards), *operation) for operation in operations]

    # ---- refusals ------------------------------------------------------------------------------------------------

    def _check(self, op: Append, opened: OpenTransaction, there: dict[int, bool]) -> None:
        """Raises the error that refuses an operation. `there` says which records exist after the operations checked
        before it, and is updated by this one."""
        exists = there.get(op.id, op.id in opened.added or (op.id in self._records and op.id not in opened.deleted))
        if op.type == ADD and exists:
            raise RecordExistsError(f"record {op.id} exists")
        if op.type != ADD and not exists:
            raise RecordMissingError(f"no record {op.id} in transaction {op.tx}")
        if op.type == UPDATE:
            self._locks.check_update(op.id, op.kind, op.subject, op.tx)
        else:
            self._locks.check_record(op.id, op.tx)
            there[op.id] = op.type == ADD

    def _check_then(self, tx: int, then: Sequence[PlainOperation]) -> None:
        """Raises the error that refuses an operation that shall follow the commit of `tx`."""
        opened = self._open.get(tx)
        there: dict[int, bool] = {}
        if opened is not None:
            there |= dict.fromkeys(opened.deleted, False) | dict.fromkeys(opened.added, True)
        for type_, record_id, kind, data, replaceable, subject in then:
            self._records.check(record_id, kind, data, subject, replaceable, type_)
            exists = there.get(record_id, record_id in self._records)
            if type_ == ADD and exists:
                raise RecordExistsError(f"record {record_id} exists once transaction {tx} is committed")
            if type_ != ADD and not exists:
                raise RecordMissingError(f"no record {record_id} once transaction {tx} is committed")
            if type_ == UPDATE:
                self._locks.check_update(record_id, kind, subject, tx)
            else:
                self._locks.check_record(record_id, tx)
                there[record_id] = type_ == ADD

    def _check_bounds(self, opened: OpenTransaction, ops: Sequence[Append]) -> None:
        """Raises FullError if more would be staged than one transaction, or all together, may stage."""
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
            self._staged.operations + newly > limits.staged_total_operations_max
            or self._staged.bytes + newly_bytes > limits.staged_total_bytes_max
        ):
            raise FullError(
                "staged transactions are at their limit: settle some (staged_total_operations_max, _bytes_max)"
            )

    # ---- taking and staging -----------------------------------------------------------------------------------------

    def _take(self, op: Append, opened: OpenTransaction) -> None:
        """Take the locks that the operation needs, and note its effect."""
        opened.operations += 1
        opened.bytes += op.size
        if op.type == UPDATE:
            self._locks.take_update(op.id, op.kind, op.subject, op.tx)
            return
        self._locks.take_record(op.id, op.tx)
        if op.type == ADD:
            opened.added.add(op.id)
            return
        opened.added.discard(op.id)
        if op.id in self._records:
            opened.deleted.add(op.id)

    def _stage(self, opened: OpenTransaction, ops: Sequence[Append]) -> list[Append]:
        for op in ops:
            opened.covers[op.shard] = opened.covers.get(op.shard, 0) + 1
        self._count_staged(len(ops), sum([op.size for op in ops]))
        return list(ops)

    def _stage_buffered(self, opened: OpenTransaction) -> list[Append]:
        opened.staged = True
        self._buffered_bytes -= opened.bytes
        ops, opened.buffered = opened.buffered, []
        return self._stage(opened, ops)

    def _count_staged(self, operations: int, size: int) -> None:
        self._staged = Amount(self._staged.operations + operations, self._staged.bytes + size)


def _settling(type_: OperationType.ValueType, opened: OpenTransaction) -> list[Append]:
    """A COMMIT or ROLLBACK for every shard that a staged transaction touches."""
    return [Append(shard, type_, tx=opened.tx, covers=covers) for shard, covers in sorted(opened.covers.items())]


def _without_cancelled(ops: list[Append]) -> list[Append]:
    """The operations without those on records that the same transaction both adds and deletes."""
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
