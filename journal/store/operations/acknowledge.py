"""How messages are settled: references of a queue are acknowledged, one or many at a time, inside a transaction or not.

A reference is gone for everybody else as soon as its acknowledgement is accepted. The acknowledgement of a message's
last reference also deletes the message, in the same group.

Hot path: outside of transactions. If each of many references is the last one of its message, all are handled column by
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from journal.append.completion import Completion
from journal.append.interrupted import is_refusal
from journal.append.operations import AnyOperation, DeletedRecords, PlainOperation
from journal.errors import StoreError
from journal.store.operations.change import ReferenceChanges
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.pending import COMPLETED, Pending, PendingAll
from journal.store.queues.entry import QueueEntry
from journal.store.queues.state import QueueState
from journal.store.records import encode_acknowledgement
from journal.store.transactions import Taken
from journal.v1.journal_pb2 import DELETE, UPDATE
from journal.v1.store_pb2 import ACKNOWLEDGE, Acknowledgement

Reason: TypeAlias = Acknowledgement.Reason.ValueType

_NOBODY_KNOWS = -1
"""The number that locks a reference whose acknowledgement was interrupted, so that it is not known whether the journal
has it."""


class AcknowledgeOperations:
    """Operations that settle references."""

    def __init__(self, core: StoreCore, changes: ReferenceChanges, discard: MessageDiscard) -> None:
        self._core = core
        self._changes = changes
        self._discard = discard

    # ---- one -------------------------------------------------------------------------------------------------------

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        with self._core.lock:
            state = self._core.enter()
            target = state.queue(queue)
            if tx:
                return Pending(message_id, self.settle_in(state, [message_id], target, holder, tx))
            return self.settle(state, message_id, target, holder, Acknowledgement.CONSUMED)

    def settle(
        self, state: QueueState, message_id: int, queue: QueueEntry, holder: str, reason: Reason,
        before: list[PlainOperation] | None = None,
    ) -> Pending:  # fmt: skip
        """Settle one reference outside of transactions. The operations `before` come first in the same group."""
        queue_id = queue.record_id
        row, durable, references, chunks = state.to_acknowledge(message_id, queue_id, holder)
        settled = encode_acknowledgement(reason, holder) if durable and queue.config.durable else b""
        completion = None
        try:
            if durable and references == 1 and queue.config.durable and not (chunks or before):
                completion = self._core.journal.delete_with_update(message_id, ACKNOWLEDGE, settled, queue_id)
            else:
                operations: list[PlainOperation] = before or []
                operations += _settling(message_id, durable, references, chunks, queue, settled)
                if operations:
                    completion = self._core.journal.append_all(operations)
        except BaseException as error:
            if not is_refusal(error):
                state.lock(message_id, queue_id, _NOBODY_KNOWS, holder)
            raise
        if state.acknowledge_row(queue, row) and (chunks or not durable):
            self._discard.drop_bodies(message_id, chunks)
        if completion is None:
            state.settled(message_id, queue_id)
            return Pending(message_id)
        self._core.effects.settles(completion, message_id, queue_id)
        return Pending(message_id, completion)

    # ---- many ------------------------------------------------------------------------------------------------------

    def acknowledge_all(self, message_ids: Sequence[int], queue: str, holder: str = "", tx: int = 0) -> PendingAll:
        with self._core.lock:
            state = self._core.enter()
            target = state.queue(queue)
            if not message_ids:
                return PendingAll(())
            if tx:
                _require_each_once(message_ids)
                return PendingAll(message_ids, self.settle_in(state, message_ids, target, holder, tx))
            settled = encode_acknowledgement(Acknowledgement.CONSUMED, holder)
            queue_id = target.record_id
            run = state.to_acknowledge_run(message_ids, queue_id, holder) if target.config.durable else None
            if run is None:
                _require_each_once(message_ids)
                return self._acknowledge_each(state, message_ids, target, holder, settled)
            deleted = DeletedRecords(message_ids, ACKNOWLEDGE, settled, queue_id)
            completion = self._append_settled(state, [deleted], message_ids, queue_id, holder)
            state.acknowledge_run(target, run)
            self._core.effects.when_durable(completion, state.settled_run, run, queue_id)
            return PendingAll(message_ids, completion)

    def _acknowledge_each(
        self, state: QueueState, message_ids: Sequence[int], queue: QueueEntry, holder: str, settled: bytes
    ) -> PendingAll:
        """Settle references of messages of any kind."""
        queue_id, queue_durable = queue.record_id, queue.config.durable
        operations: list[AnyOperation] = []
        last: list[int] = []
        written: set[int] = set()
        for message_id in message_ids:
            _, durable, references, chunks = state.to_acknowledge(message_id, queue_id, holder)
            if not durable or not (queue_durable or references == 1):
                continue
            written.add(message_id)
            if queue_durable and references == 1 and not chunks:
                last.append(message_id)
            else:
                operations += _settling(message_id, durable, references, chunks, queue, settled)
        if last:
            operations.append(DeletedRecords(last, ACKNOWLEDGE, settled, queue_id))
        completion = self._append_settled(state, operations, message_ids, queue_id, holder) if operations else None
        for message_id in message_ids:
            chunks = state.remainder(message_id)[2]
            # the row is looked up again, because it may have moved when other references were brought to memory
            if state.acknowledge(message_id, queue_id, holder):
                self._discard.drop_bodies(message_id, chunks)
            if completion is not None and message_id in written:
                self._core.effects.settles(completion, message_id, queue_id)
            else:
                state.settled(message_id, queue_id)
        return PendingAll(message_ids) if completion is None else PendingAll(message_ids, completion)

    def _append_settled(
        self,
        state: QueueState,
        operations: Sequence[AnyOperation],
        message_ids: Sequence[int],
        queue_id: int,
        holder: str,
    ) -> Completion:
        try:
            return self._core.journal.append_all(operations)
        except BaseException as error:
            if not is_refusal(error):
                for message_id in message_ids:
                    state.lock(message_id, queue_id, _NOBODY_KNOWS, holder)
            raise

    # ---- in transactions -------------------------------------------------------------------------------------------

    def settle_in(
        self, state: QueueState, message_ids: Sequence[int], queue: QueueEntry, holder: str, tx: int,
        reason: Reason = Acknowledgement.CONSUMED,
    ) -> Completion:  # fmt: skip
        """Settle references of one queue in a transaction, all of them or none."""
        txn = self._core.transactions.accepting(tx)
        queue_id = queue.record_id
        operations: list[PlainOperation] = []
        taken: list[Taken] = []
        locked: list[int] = []
        try:
            for message_id in message_ids:
                durable = queue.config.durable and state.remainder(message_id)[0]
                has_it = holder
                if (message_id, queue_id) in txn.changed:
                    # the lock is for others: a load would lock the reference for the transaction, and a rollback would
                    # unlock it
                    has_it = self._core.reference(message_id, queue).holder or holder
                data = encode_acknowledgement(reason, has_it)
                if self._changes.lock_in(state, txn, message_id, queue, holder):
                    locked.append(message_id)
                if durable:
                    operations.append((UPDATE, message_id, ACKNOWLEDGE, data, False, queue_id))
                taken.append(Taken(message_id, queue_id, has_it, durable))
            completion = self._core.journal.append_all(operations, tx=tx) if operations else COMPLETED
        except BaseException as error:
            if is_refusal(error):
                for message_id in locked:
                    state.unlock(message_id, queue_id)
            raise
        for message_id in message_ids:
            key = (message_id, queue_id)
            if key in txn.changed:
                txn.changed[key] = txn.changed[key]._replace(acknowledged=True)
        txn.take(queue_id, taken)
        return completion


def _require_each_once(message_ids: Sequence[int]) -> None:
    """Raises StoreError for a message that is named twice."""
    if len({*message_ids}) == len(message_ids):
        return
    seen: set[int] = set()
    for message_id in message_ids:
        if message_id in seen:
            raise StoreError(f"message {message_id} is given twice")
        seen.add(message_id)


def _settling(
    message_id: int, durable: bool, references: int, chunks: Sequence[int], queue: QueueEntry, settled: bytes
) -> list[PlainOperation]:
    """The operations that settle a reference, and delete its message if the reference is its last one."""
    operations: list[PlainOperation] = []
    if durable and queue.config.durable:
        operations.append((UPDATE, message_id, ACKNOWLEDGE, settled, False, queue.record_id))
    if durable and references == 1:
        operations += [(DELETE, each, 0, b"", False, 0) for each in (message_id, *chunks)]
    return operations
