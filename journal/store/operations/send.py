"""One message into a message store, stored alone or routed to queues of its address.

Hot path: `send` of a durable message to one durable queue, outside of transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from journal.store.message_records import encode_message
from journal.store.model import Message
from journal.store.operations.add import MessageAdder, Outgoing, require_routable
from journal.store.operations.core import StoreCore
from journal.store.operations.ids import StoreIds
from journal.store.operations.stream import StreamOperations
from journal.store.pending import Pending
from journal.store.queues.entry import AddressEntry, QueueEntry
from journal.v1.store_pb2 import MESSAGE, ROUTE
from journal.wire.ids import SHARD_MASK


class SendOperations:
    """Operations that add one message."""

    def __init__(self, core: StoreCore, ids: StoreIds, adder: MessageAdder, stream: StreamOperations) -> None:
        self._core = core
        self._ids = ids
        self._adder = adder
        self._stream = stream

    def store(self, message: Message, tx: int, id: int, checked: bool) -> Pending:
        return self.send(message, (), tx, id, checked)

    def send(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool) -> Pending:
        if len(message.body) > self._core.inline_bytes_max:
            return self._send_large(message, queues, tx, id, checked)
        core, data = self._core, encode_message(message)
        with core.lock:
            if not (tx or id or message.duplicate_id or self._ids.chosen) and message.durable and len(queues) == 1:
                state = core.enter()
                address, queue = state.address(message.address), state.queue(queues[0])
                if queue.config.durable:
                    return self._send_to_one(message, data, address, queue)
            return self._adder.add(Outgoing(message, data, checked=checked), queues, tx, id)

    def _send_large(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool) -> Pending:
        self._adder.require_size(message)
        stream = self._stream.open(replace(message, body=b""), queues, tx, id, checked)
        try:
            stream.chunks.feed(message.body)
            while stream.chunks.has_chunk(end=True):
                stream.chunks.put_chunk()
            return self._stream.close(stream)
        except BaseException:
            self._stream.cut_off(stream)
            raise

    def _send_to_one(self, message: Message, data: bytes, address: AddressEntry, queue: QueueEntry) -> Pending:
        """Add a durable message without a duplicate-detection id to one durable queue, outside of transactions."""
        if queue.config.address != message.address:
            require_routable(message.address, [queue])
        core, queue_id = self._core, queue.record_id
        message_id, completion = core.journal.add_with_update(queue_id & SHARD_MASK, MESSAGE, data, ROUTE, queue_id)
        core.cache.put(completion, message_id, data)
        core.state.store_and_route(
            message_id,
            address.record_id,
            queue,
            message.priority,
            len(data),
            message.expires,
            message.timestamp,
            message.due,
        )
        core.effects.arrives(completion, message_id, queue_id)
        return Pending(message_id, completion)
