"""Changes that transactions make to references that stay in their queue: acquired, released, counted, scheduled.

The first such operation locks the reference when it is accepted. The transaction itself sees its own changes; everybody
else sees the old reference, as locked. When the commit is durable, the changes are visible to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import MessageHeldError
from journal.store.model import ReferenceInfo, ReferenceState
from journal.store.operations.core import StoreCore
from journal.store.pending import COMPLETED, Pending
from journal.store.queues.entry import QueueEntry
from journal.store.queues.state import QueueState
from journal.store.records import encode_reference
from journal.store.transactions import Changed, StoreTransaction
from journal.v1.journal_pb2 import UPDATE
from journal.v1.store_pb2 import REFERENCE, Reference

Change: TypeAlias = Reference.Change.ValueType


class ReferenceLeft(NamedTuple):
    """A reference as a transaction has seen it, and the state in which the transaction leaves it."""

    seen: ReferenceInfo
    queue: QueueEntry
    holder: str
    deliveries: int
    due: int


class ReferenceChanges:
    """Changes of references inside transactions. Its callers hold the store's lock."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core

    def seen_by(self, txn: StoreTransaction | None, message_id: int, queue: QueueEntry) -> ReferenceInfo:
        """A reference with the changes of a transaction, or as everybody sees it.

        Raises MessageMissingError, MessageHeldError (another transaction locks it, or this one has acknowledged it).
        """
        info = self._core.reference(message_id, queue)
        changed = None if txn is None else txn.changed.get((message_id, queue.record_id))
        if txn is None or changed is None:
            require_unlocked(info)
            return info
        holder, deliveries, due, _, acknowledged = changed
        if acknowledged:
            raise _acknowledged(message_id, txn)
        waits = ReferenceState.SCHEDULED if due else ReferenceState.READY
        return info._replace(
            state=ReferenceState.HELD if holder else waits, holder=holder, deliveries=deliveries, due=due, tx=0
        )

    def change_in(
        self,
        state: QueueState,
        txn: StoreTransaction,
        change: Change,
        seen: ReferenceInfo,
        queue: QueueEntry,
        *,
        holder: str,
        deliveries: int,
        due: int,
    ) -> Pending:
        """Append a transaction's change of a reference, and lock the reference."""
        left = ReferenceLeft(seen, queue, holder, deliveries, due)
        return Pending(seen.message, self.change_all_in(state, txn, change, [left]))

    def change_all_in(
        self, state: QueueState, txn: StoreTransaction, change: Change, changes: Sequence[ReferenceLeft]
    ) -> Completion:
        """Append a transaction's changes of references, all of them or none, and lock the references."""
        operations: list[PlainOperation] = []
        durable: list[bool] = []
        for (message_id, *_), queue, holder, deliveries, due in changes:
            durable.append(queue.config.durable and message_id not in self._core.volatile)
            if durable[-1]:
                data = encode_reference(change, journaled_holder(queue, holder), deliveries, due)
                operations.append((UPDATE, message_id, REFERENCE, data, True, queue.record_id))
        completion = self._core.journal.append_all(operations, tx=txn.tx) if operations else COMPLETED
        for (seen, queue, holder, deliveries, due), is_durable in zip(changes, durable, strict=True):
            key = (seen.message, queue.record_id)
            if key not in txn.changed:
                state.lock(*key, txn.tx, seen.holder)
            txn.change(key, Changed(holder, deliveries, due, is_durable))
        return completion

    def lock_in(
        self, state: QueueState, txn: StoreTransaction, message_id: int, queue: QueueEntry, holder: str
    ) -> bool:
        """Lock a reference for its acknowledgement by a transaction; False if an earlier change of the transaction has
        locked it already.

        Raises what `QueueState.lock` raises, and MessageHeldError if the transaction has given it to another holder.
        """
        changed = txn.changed.get((message_id, queue.record_id))
        if changed is None:
            state.lock(message_id, queue.record_id, txn.tx, holder)
            return True
        if changed.acknowledged:
            raise _acknowledged(message_id, txn)
        if changed.holder not in ("", holder):
            raise MessageHeldError(f"message {message_id} is held by {changed.holder!r}", message_id)
        return False

    def holder_of(self, message_id: int, queue: QueueEntry, tx: int) -> str:
        """The holder of a message after the transaction's changes; empty if there is none."""
        info = self._core.reference(message_id, queue)
        txn = self._core.transactions.open.get(tx)
        changed = None if txn is None else txn.changed.get((message_id, queue.record_id))
        return info.holder if changed is None else changed.holder

    def require_settleable(self, txn: StoreTransaction | None, message_id: int, queue: QueueEntry, holder: str) -> None:
        """Raises what an acknowledgement for a holder would raise: MessageMissingError, MessageHeldError."""
        seen = self.seen_by(txn, message_id, queue)
        if seen.holder not in ("", holder):
            raise MessageHeldError(f"message {message_id} is held by {seen.holder!r}", message_id)

    def require_unchanged(self, message_id: int, queue: QueueEntry, info: ReferenceInfo) -> None:
        """Raises MessageHeldError if a transaction changes the reference."""
        if info.state is not ReferenceState.LOCKED:
            return
        transactions = self._core.transactions
        for txn in (*transactions.settling, transactions.open.get(info.tx)):
            if txn is not None and (message_id, queue.record_id) in txn.changed:
                raise MessageHeldError(f"message {message_id} is locked by transaction {txn.tx}", message_id)


def journaled_holder(queue: QueueEntry, holder: str) -> str:
    """The holder that a REFERENCE update names: none, unless the queue journals acquisitions."""
    return holder if queue.config.journaled_acquisition else ""


def require_unlocked(info: ReferenceInfo) -> None:
    """Raises MessageHeldError if a transaction locks the reference."""
    if info.state is ReferenceState.LOCKED:
        raise MessageHeldError(f"message {info.message} is locked by transaction {info.tx}", info.message)


def _acknowledged(message_id: int, txn: StoreTransaction) -> MessageHeldError:
    return MessageHeldError(f"message {message_id} was acknowledged in transaction {txn.tx}", message_id)
