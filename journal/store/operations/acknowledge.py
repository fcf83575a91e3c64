"""How messages are settled: references are acknowledged, one or many at a time, inside a transaction or not.

A reference is gone for everybody else as soon as its acknowledgement is accepted. The acknowledgement of a message's
last reference also deletes the message, in the same group.

Hot path: outside of transactions. If each of many references is the last one of its message, all are handled column by
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from journal.append.completion import Completion
from journal.append.interrupted import is_refusal
from journal.append.operations import AnyOperation, DeletedRecords, PlainOperation
from journal.errors import StoreError
from journal.store.model import Held, ids_of
from journal.store.operations.change import ReferenceChanges
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.pending import COMPLETED, Pending, PendingAll
from journal.store.queues.entry import QueueEntry
from journal.store.queues.runs import Run
from journal.store.queues.state import QueueState
from journal.store.records import encode_acknowledgement
from journal.store.transactions import Taken
from journal.v1.journal_pb2 import DELETE, UPDATE
from journal.v1.store_pb2 import ACKNOWLEDGE, Acknowledgement

Reason: TypeAlias = Acknowledgement.Reason.ValueType

_RUN_MIN = 4
"""The smallest number of messages for which handling them column by column is cheaper."""

_NOBODY_KNOWS = -1
"""The number that locks a reference whose acknowledgement was interrupted, so that it is not known whether the journal
has it."""


class HeldPart(NamedTuple):
    """Messages of one queue that one holder settles; the queue of a `Held`, found."""

    queue: QueueEntry
    messages: Sequence[int]
    holder: str


class AcknowledgeOperations:
    """Operations that settle references."""

    def __init__(self, core: StoreCore, changes: ReferenceChanges, discard: MessageDiscard) -> None:
        self._core = core
        self._changes = changes
        self._discard = discard

    def acknowledge_all(self, held: Sequence[Held], tx: int = 0) -> PendingAll:
        with self._core.lock:
            state = self._core.enter()
            parts = parts_of(state, held)
            if not parts:
                return PendingAll(())
            for part in parts:
                if part.holder:
                    state.note_acted(part.holder, self._core.clock_ms())
            if tx:
                return PendingAll(ids_of(held), self.settle_in(state, parts, tx))
            if len(parts) == 1 and len(parts[0].messages) == 1:
                queue, (message_id,), holder = parts[0]
                pending = self.settle(state, message_id, queue, holder, Acknowledgement.CONSUMED)
                return PendingAll((message_id,), pending.completion)
            return PendingAll(ids_of(held), self.settle_all(state, parts))

    # ---- one -------------------------------------------------------------------------------------------------------

    def settle(
        self, state: QueueState, message_id: int, queue: QueueEntry, holder: str, reason: Reason,
        before: list[PlainOperation] | None = None,
    ) -> Pending:  # fmt: skip
        """Settle one reference outside of transactions. The operations `before` come first in the same group."""
        queue_id = queue.record_id
        row, durable, references, chunks = state.to_acknowledge(message_id, queue_id, holder)
        settled = b""
        if durable and queue.config.durable:
            settled = encode_acknowledgement(reason, holder, *state.delivery_of(row))
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
        queue.counters.settled(reason)
        if state.acknowledge_row(queue, row) and (chunks or not durable):
            self._discard.drop_bodies(message_id, chunks)
        if completion is None:
            state.settled(message_id, queue_id)
            return Pending(message_id)
        self._core.effects.settles(completion, message_id, queue_id)
        return Pending(message_id, completion)

    # ---- many ------------------------------------------------------------------------------------------------------

    def settle_all(
        self, state: QueueState, parts: Sequence[HeldPart], reason: Reason = Acknowledgement.CONSUMED,
        before: Sequence[PlainOperation] = (),
    ) -> Completion:  # fmt: skip
        """Settle references outside of transactions, all of them or none. The operations `before` come first in the
        same group. Parts that are runs are settled column by column."""
        runs: list[tuple[HeldPart, Run]] = []
        others: list[HeldPart] = []
        for part in parts:
            run = None
            if len(part.messages) >= _RUN_MIN and part.queue.config.durable:
                run = state.to_acknowledge_run(part.messages, part.queue.record_id, part.holder)
            if run is None:
                others.append(part)
            else:
                runs.append((part, run))
        if others or len(runs) > 1:
            require_each_once(parts)
        settling, written = self._settling_each(state, others, reason)
        operations: list[AnyOperation] = [*before, *settling]
        for part, run in runs:
            queue_id, place = part.queue.record_id, 0
            for count, delivered, deliveries in state.deliveries_of_run(run):
                settled = encode_acknowledgement(reason, part.holder, delivered, deliveries)
                ids = part.messages[place : place + count]
                operations.append(DeletedRecords(ids, ACKNOWLEDGE, settled, queue_id))
                place += count
        completion = self._append_settled(state, operations, parts) if operations else COMPLETED
        for part in parts:
            part.queue.counters.settled(reason, len(part.messages))
        for part, run in runs:
            state.acknowledge_run(part.queue, run)
            self._core.effects.when_durable(completion, state.settled_run, run, part.queue.record_id)
        for part in others:
            self._acknowledge_each(state, part, written, completion)
        return completion

    def _settling_each(
        self, state: QueueState, parts: Sequence[HeldPart], reason: Reason
    ) -> tuple[list[AnyOperation], set[tuple[int, int]]]:
        """The operations that settle messages of any kind, and the (message, queue) pairs for which there are some."""
        operations: list[AnyOperation] = []
        last: dict[tuple[int, bytes], list[int]] = {}
        """Messages that are deleted with their last reference, by queue and acknowledgement."""
        settled_before: dict[int, int] = {}
        written: set[tuple[int, int]] = set()
        for queue, messages, holder in parts:
            queue_id, queue_durable = queue.record_id, queue.config.durable
            for message_id in messages:
                row, durable, references, chunks = state.to_acknowledge(message_id, queue_id, holder)
                before = settled_before[message_id] = settled_before.get(message_id, 0) + 1
                references -= before - 1
                if not durable or not (queue_durable or references == 1):
                    continue
                written.add((message_id, queue_id))
                settled = encode_acknowledgement(reason, holder, *state.delivery_of(row))
                if queue_durable and references == 1 and not chunks and before == 1:
                    last.setdefault((queue_id, settled), []).append(message_id)
                else:
                    operations += _settling(message_id, durable, references, chunks, queue, settled)
        operations += [DeletedRecords(ids, ACKNOWLEDGE, settled, queue_id) for (queue_id, settled), ids in last.items()]
        return operations, written

    def _acknowledge_each(
        self, state: QueueState, part: HeldPart, written: set[tuple[int, int]], completion: Completion
    ) -> None:
        queue_id = part.queue.record_id
        for message_id in part.messages:
            chunks = state.remainder(message_id)[2]
            # the row is looked up again, because it may have moved when other references were brought to memory
            if state.acknowledge(message_id, queue_id, part.holder):
                self._discard.drop_bodies(message_id, chunks)
            if (message_id, queue_id) in written:
                self._core.effects.settles(completion, message_id, queue_id)
            else:
                state.settled(message_id, queue_id)

    def _append_settled(
        self, state: QueueState, operations: Sequence[AnyOperation], parts: Sequence[HeldPart]
    ) -> Completion:
        try:
            return self._core.journal.append_all(operations)
        except BaseException as error:
            if not is_refusal(error):
                for queue, messages, holder in parts:
                    for message_id in messages:
                        state.lock(message_id, queue.record_id, _NOBODY_KNOWS, holder)
            raise

    # ---- in transactions -------------------------------------------------------------------------------------------

    def settle_in(
        self, state: QueueState, parts: Sequence[HeldPart], tx: int, reason: Reason = Acknowledgement.CONSUMED,
        before: Sequence[PlainOperation] = (),
    ) -> Completion:  # fmt: skip
        """Settle references in a transaction, all of them or none. The operations `before` come first."""
        txn = self._core.transactions.accepting(tx)
        require_each_once(parts)
        operations: list[PlainOperation] = [*before]
        taken: list[Taken] = []
        locked: list[tuple[int, int]] = []
        try:
            for queue, messages, holder in parts:
                for message_id in messages:
                    key = (message_id, queue.record_id)
                    has_it = holder
                    if key in txn.changed:
                        # the lock is for others: a load would lock the reference for the transaction, and a rollback
                        # would unlock it
                        has_it = self._core.reference(message_id, queue).holder or holder
                    if self._changes.lock_in(state, txn, message_id, queue, holder):
                        locked.append(key)
                    durable = queue.config.durable and state.remainder(message_id)[0]
                    if durable:
                        data = encode_acknowledgement(reason, has_it, *state.delivery_in(*key))
                        operations.append((UPDATE, message_id, ACKNOWLEDGE, data, False, queue.record_id))
                    taken.append(Taken(message_id, queue.record_id, has_it, durable, reason))
            completion = self._core.journal.append_all(operations, tx=tx) if operations else COMPLETED
        except BaseException as error:
            if is_refusal(error):
                for key in locked:
                    state.unlock(*key)
            raise
        for each in taken:
            key = (each.message, each.queue)
            if key in txn.changed:
                txn.changed[key] = txn.changed[key]._replace(acknowledged=True)
        txn.take(taken)
        return completion


def parts_of(state: QueueState, held: Sequence[Held]) -> list[HeldPart]:
    """The parts that have messages. Raises QueueMissingError."""
    parts = [HeldPart(state.queue(queue), messages, holder) for queue, messages, holder in held]
    return [part for part in parts if part.messages]


def require_each_once(parts: Sequence[HeldPart]) -> None:
    """Raises StoreError for a message that is named twice in one queue."""
    seen: set[tuple[int, int]] = set()
    for queue, messages, _ in parts:
        for message_id in messages:
            if (message_id, queue.record_id) in seen:
                raise StoreError(f"message {message_id} is given twice")
            seen.add((message_id, queue.record_id))


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
