"""Operations on stored messages: routing one to a further queue, and deleting one that is in no queue."""

from __future__ import annotations

from journal.append.operations import PlainOperation
from journal.errors import MessageMissingError, StoreError
from journal.store.operations.add import require_routable
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.pending import Pending
from journal.store.records import encode_reference, require_due
from journal.v1.journal_pb2 import DELETE, UPDATE
from journal.v1.store_pb2 import REFERENCE, ROUTE, Reference


class RouteOperations:
    """Operations on messages that are stored already."""

    def __init__(self, core: StoreCore, discard: MessageDiscard) -> None:
        self._core = core
        self._discard = discard

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        require_due(due)
        core = self._core
        with core.lock:
            state = core.enter()
            entry, target = state.message(message_id), state.queue(queue)
            queue_id = target.record_id
            stored_in = core.transactions.stored_in.get(message_id, tx)
            if stored_in != tx or not (entry.references or message_id in self._discard.unrouted):
                raise MessageMissingError(f"message {message_id} is not there to be routed", message_id)
            require_routable(entry.address, [target])
            txn = core.transactions.accepting(tx) if tx else None
            durable = entry.durable and target.config.durable
            state.require_routable(message_id, queue_id)
            pending = Pending(message_id)
            if durable:
                operations = _route_operations(message_id, queue_id, due if due != entry.due else 0)
                pending.completion = core.journal.append_all(operations, tx=tx)
            state.route(message_id, queue_id, due=due or entry.due, tx=tx)
            if txn is not None:
                txn.route(message_id, queue_id, durable=durable)
                return pending
            self._discard.unrouted.discard(message_id)
            if durable:
                core.effects.arrives(pending.completion, message_id, queue_id)
            else:
                state.arrive(message_id, queue_id)
            return pending

    def delete(self, message_id: int) -> Pending:
        core = self._core
        with core.lock:
            state = core.enter()
            entry = state.message(message_id)
            if entry.references:
                raise StoreError(f"message {message_id} is in queues: acknowledge it there")
            if tx := core.transactions.stored_in.get(message_id, 0):
                raise StoreError(f"transaction {tx} stores message {message_id}: roll it back")
            if message_id not in self._discard.unrouted:
                raise MessageMissingError(f"message {message_id} is not there to be deleted", message_id)
            pending = Pending(message_id)
            if entry.durable:
                deletes: list[PlainOperation] = [
                    (DELETE, each, 0, b"", False, 0) for each in (message_id, *entry.chunks)
                ]
                pending.completion = core.journal.append_all(deletes)
            self._discard.forget(message_id, entry.chunks)
            return pending


def _route_operations(message_id: int, queue_id: int, due: int) -> list[PlainOperation]:
    operations: list[PlainOperation] = [(UPDATE, message_id, ROUTE, b"", False, queue_id)]
    if due:
        scheduled = encode_reference(Reference.SCHEDULED, due=due)
        operations.append((UPDATE, message_id, REFERENCE, scheduled, True, queue_id))
    return operations
