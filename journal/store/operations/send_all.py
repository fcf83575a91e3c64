"""Adds many messages of one address to a message store at once: all of them, or none.

Hot path: durable messages with small bodies and without duplicate-detection ids, for one durable queue, outside of
transactions. They go column by column through the store and the journal. All others are added one by one, in one group.
"""

from __future__ import annotations

from collections.abc import Sequence

from journal.append.completion import Completion
from journal.append.operations import NewRecords, PlainOperation
from journal.errors import StoreError
from journal.store.message_records import encode_messages
from journal.store.model import Message
from journal.store.operations.add import Adding, MessageAdder, Outgoing, message_operations, require_routable
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.ids import StoreIds
from journal.store.pending import PendingAll
from journal.store.queues.entry import AddressEntry, QueueEntry
from journal.store.queues.state import QueueState
from journal.store.transactions import StoreTransaction
from journal.v1.journal_pb2 import ADD
from journal.v1.store_pb2 import CHUNK, MESSAGE, ROUTE
from journal.wire.ids import SHARD_MASK


class _Batch:
    """The messages that one call of `send_all` adds one by one, and the operations that store them."""

    __slots__ = ("added", "operations")

    def __init__(self) -> None:
        self.added: list[tuple[Outgoing, Adding]] = []
        self.operations: list[PlainOperation] = []
        """The operations of the durable messages."""


class SendAllOperations:
    """The operation that adds many messages."""

    def __init__(self, core: StoreCore, ids: StoreIds, adder: MessageAdder, discard: MessageDiscard) -> None:
        self._core = core
        self._ids = ids
        self._adder = adder
        self._discard = discard

    def send_all(
        self,
        messages: Sequence[Message],
        queues: Sequence[str],
        tx: int,
        ids: Sequence[int],
        *,
        checked: bool,
    ) -> PendingAll:
        if ids and len(ids) != len(messages):
            raise StoreError(f"messages and ids must be as many, not {len(messages)} and {len(ids)}")
        data = encode_messages(messages, self._core.inline_bytes_max)
        with self._core.lock:
            state = self._core.enter()
            txn = self._core.transactions.accepting(tx) if tx else None
            if not messages:
                return PendingAll(())
            address = state.address(messages[0].address)
            if {each.address for each in messages} != {address.name}:
                raise StoreError("messages that are sent together are of one address")
            targets = [state.queue(name) for name in queues]
            require_routable(address.name, targets)
            if len(targets) == 1 and targets[0].config.durable and not (tx or ids) and _are_plain(messages, data):
                return self._send_run(state, messages, data, address, targets[0])
            return self._send_each(state, messages, data, address, targets, txn, ids, checked=checked)

    def _send_run(
        self,
        state: QueueState,
        messages: Sequence[Message],
        data: list[bytes],
        address: AddressEntry,
        queue: QueueEntry,
    ) -> PendingAll:
        queue_id = queue.record_id
        ids = self._ids.issue_many(queue_id & SHARD_MASK, len(data))
        completion = self._core.journal.append_all([NewRecords(MESSAGE, ids, data, ROUTE, queue_id)])
        sizes = [*map(len, data)]
        self._core.cache.put_all(completion, ids, data, sum(sizes))
        run = state.store_routed(
            ids,
            address.record_id,
            queue_id,
            sizes=sizes,
            timestamps=[each.timestamp for each in messages],
            priorities=[each.priority for each in messages],
            expires=[each.expires for each in messages],
            dues=[each.due for each in messages],
        )
        self._core.effects.when_durable(completion, state.arrive_run, run, queue_id)
        return PendingAll(ids, completion)

    # ---- one by one ------------------------------------------------------------------------------------------------

    def _send_each(
        self,
        state: QueueState,
        messages: Sequence[Message],
        data: list[bytes],
        address: AddressEntry,
        targets: Sequence[QueueEntry],
        txn: StoreTransaction | None,
        ids: Sequence[int],
        *,
        checked: bool,
    ) -> PendingAll:
        batch = _Batch()
        message_ids = self._ids_for(address, messages, ids)
        duplicate_ids = [each.duplicate_id for each in messages if each.duplicate_id]
        window, slots = self._adder.slots(address, duplicate_ids, txn, checked=checked)
        left = iter(slots)
        completion: Completion | None = None
        try:
            for message, encoded, message_id in zip(messages, data, message_ids, strict=True):
                slot = next(left, -1) if message.duplicate_id else -1
                adding = Adding(message_id, address, targets, window if slot >= 0 else None, slot, [])
                self._begin_one(batch, message, encoded, adding, chosen=ids)
            if batch.operations:
                completion = self._core.journal.append_all(batch.operations, tx=0 if txn is None else txn.tx)
        except BaseException:
            for out, adding in batch.added:
                self._discard.drop_bodies(adding.message_id, out.chunks)
            raise
        for out, adding in batch.added:
            if txn is None:
                self._adder.finish(state, out, adding, completion)
            else:
                self._adder.finish_in(txn, state, out, adding)
        return PendingAll(message_ids) if completion is None else PendingAll(message_ids, completion)

    def _ids_for(self, address: AddressEntry, messages: Sequence[Message], wanted: Sequence[int]) -> list[int]:
        """The ids for the messages. Raises StoreError for ids that are in use, are in another virtual shard than the
        address, or are given twice."""
        if wanted:
            if len({*wanted}) < len(wanted):
                raise StoreError("an id is given to two messages")
            return [self._ids.new(address, each) for each in wanted]
        virtual_shard = address.record_id & SHARD_MASK
        durable = iter(self._ids.issue_many(virtual_shard, sum(each.durable for each in messages)))
        return [next(durable) if each.durable else self._ids.issue(virtual_shard, durable=False) for each in messages]

    def _begin_one(
        self, batch: _Batch, message: Message, data: bytes, adding: Adding, *, chosen: Sequence[int]
    ) -> None:
        """Begin a checked message; its encoded `data` is empty for a large one. `chosen` are ids that callers gave."""
        chunks: list[tuple[int, bytes]] = []
        if data:
            out = Outgoing(message, data)
        else:
            self._adder.require_size(message)
            out, chunks = self._adder.in_chunks(message, adding.address.record_id & SHARD_MASK, chosen)
        batch.added.append((out, adding))
        if message.durable:
            adding.operations = message_operations(out, adding)
            batch.operations += [(ADD, chunk_id, CHUNK, piece, False, 0) for chunk_id, piece in chunks]
            batch.operations += adding.operations
            return
        for chunk_id, piece in chunks:
            self._core.volatile.put(adding.place, chunk_id, piece)
        self._adder.keep_volatile(out, adding, chosen=bool(chosen))


def _are_plain(messages: Sequence[Message], data: Sequence[bytes]) -> bool:
    """Whether all messages are durable and small, and have no duplicate-detection id."""
    return all(data) and not [each for each in messages if each.duplicate_id or not each.durable]
