"""Appends inside transactions, and the completions of their operations, which are told the transaction's outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from journal.append.completion import Completion, completed
from journal.append.count_operations import count_and_size, one_by_one
from journal.append.intake import Intake
from journal.append.issued import Issued
from journal.append.operations import AnyOperation, Append, PlainOperation
from journal.errors import RolledBackError
from journal.limits import Limits
from journal.wire.ids import shard_of


class TransactionAppends:
    """The transactions of one activation at a time. Thread-safe, except `take_pending`."""

    def __init__(self, intake: Intake, issued: Issued, shards: int, limits: Limits) -> None:
        self._intake = intake
        self._issued = issued
        self._shards = shards
        self._data_bytes_max = limits.data_bytes_max
        self._completions: dict[int, Completion] = {}
        """The completion of each open transaction."""

    def begin(self, tx: int | None = None) -> int:
        """Begin a transaction with the number `tx`, or with a free number."""
        with self._intake.lock:
            accepted = self._intake.require_active().transactions
            if tx is None:
                tx = self._issued.new_tx(accepted.is_open)
            accepted.begin(tx)
            self._completions.setdefault(tx, Completion())
            return tx

    def is_empty(self, tx: int) -> bool:
        with self._intake.lock:
            return self._intake.require_active().transactions.is_empty(tx)

    def operate(self, operation: PlainOperation, tx: int) -> Completion:
        """Append one operation inside `tx`."""
        with self._intake.lock:
            return self._operate((operation,), tx)

    def operate_all(self, operations: Sequence[AnyOperation], tx: int) -> Completion:
        """Append operations that belong together inside `tx`."""
        with self._intake.lock:
            self._intake.require_active()
            return self._operate([*one_by_one(operations, self._data_bytes_max)], tx) if operations else completed()

    def _operate(self, operations: Sequence[PlainOperation], tx: int) -> Completion:
        intake, shards = self._intake, self._shards
        acceptance = intake.require_active()
        accepted, check = acceptance.transactions, acceptance.check
        ops: list[Append] = []
        for type_, record_id, kind, data, replaceable, subject in operations:
            check(record_id, kind, data, subject, replaceable, type_)
            ops.append(Append(shard_of(record_id, shards), type_, record_id, kind, data, replaceable, subject, tx))
        waiting, size = accepted.size_of(tx)
        intake.require_room(waiting + len(ops), size + sum([op.size for op in ops]))
        intake.put(accepted.operate(ops))
        completion = self._completions.get(tx)
        if completion is None:  # no setdefault, because making an unused completion costs more than the rest of this
            completion = self._completions[tx] = Completion()
        return completion

    def prepare(self, tx: int, data: bytes, then: Sequence[PlainOperation] = ()) -> Completion:
        intake = self._intake
        with intake.lock:
            accepted = intake.require_active().transactions
            operations, size = accepted.size_of(tx)
            intake.require_room(operations + len(then), size + len(data) + count_and_size(then)[1])
            return intake.put(accepted.prepare(tx, data, then))

    def commit(self, tx: int, then: Sequence[PlainOperation] = ()) -> Completion:
        intake = self._intake
        with intake.lock:
            accepted = intake.require_active().transactions
            operations, size = accepted.size_of(tx)
            settled = accepted.settled_by(tx)
            group = intake.require_room(operations + len(then), size + count_and_size(then)[1], settled)
            appends = accepted.commit(tx, then)
            of_operations = self._completions.pop(tx, None)
            if appends:
                completion = intake.put(appends)
                if of_operations is not None:
                    completion.add_callback(of_operations.resolve)
                group.settle(settled)
                return completion
        if of_operations is not None:  # the callbacks run at once, so the lock must be free: a callback may append
            of_operations.resolve()
        return completed()

    def rollback(self, tx: int) -> Completion:
        intake = self._intake
        with intake.lock:
            accepted = intake.require_active().transactions
            settled = accepted.settled_by(tx)
            in_doubt = accepted.is_prepared(tx)
            group = intake.require_room(*accepted.rollback_size_of(tx), settled)
            completion = intake.put(accepted.rollback(tx))
            group.settle(settled)
            of_operations = self._completions.pop(tx, None)
            if of_operations is None:
                return completion
            rolled_back = RolledBackError(f"transaction {tx} was rolled back")
            if in_doubt:  # after a crash before the outcome is durable, the transaction is in doubt again
                completion.add_callback(lambda error: of_operations.resolve(error or rolled_back))
                return completion
        of_operations.resolve(rolled_back)
        return completion

    def take_pending(self, in_doubt: Iterable[int]) -> tuple[list[Completion], dict[int, Completion]]:
        """The completions that nothing will resolve any more, and those of transactions in doubt by transaction, which
        another node settles. The caller holds the lock."""
        doubtful = {tx: self._completions.pop(tx) for tx in in_doubt if tx in self._completions}
        pending = [*self._completions.values()]
        self._completions.clear()
        return pending, doubtful
