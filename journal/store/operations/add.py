"""How a message is added to the store: it is checked, appended, and made visible in its queues.

A durable message is visible in a queue once its group is durable. A message that is not durable never reaches the
journal. It is visible at once, even before durable ones that were sent earlier and whose groups are not durable yet
(JMS allows that).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import DuplicateMessageError, FullError, MessageTooLargeError, StoreError
from journal.store.duplicates import DuplicateWindow
from journal.store.message_records import encode_message
from journal.store.model import Message
from journal.store.operations.core import StoreCore
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.ids import StoreIds
from journal.store.pending import Pending
from journal.store.queues.entry import AddressEntry, QueueEntry
from journal.store.queues.state import QueueState
from journal.store.records import encode_duplicate
from journal.store.transactions import StoreTransaction
from journal.v1.journal_pb2 import ADD, UPDATE
from journal.v1.store_pb2 import DUPLICATE, MESSAGE, ROUTE
from journal.wire.ids import SHARD_MASK


class Outgoing:
    """A message that is being added: its record's data, and the chunks of a large body."""

    __slots__ = ("body_bytes", "checked", "chunks", "data", "message")

    def __init__(
        self, message: Message, data: bytes, chunks: Sequence[int] = (), body_bytes: int = 0, *, checked: bool = False
    ) -> None:
        """`checked` says that the first store of a chain has checked the duplicate-detection id already, and its answer
        holds."""
        self.message = message
        self.data = data
        self.chunks = tuple(chunks)
        self.body_bytes = body_bytes
        self.checked = checked


class Adding:
    """The parts of one message between its acceptance by the store and by the journal."""

    __slots__ = ("address", "message_id", "operations", "slot", "targets", "window")

    def __init__(
        self,
        message_id: int,
        address: AddressEntry,
        targets: Sequence[QueueEntry],
        window: DuplicateWindow | None,
        slot: int,
        operations: list[PlainOperation],
    ) -> None:
        self.message_id = message_id
        self.address = address
        self.targets = targets
        self.window = window
        self.slot = slot
        self.operations = operations
        """Operations to append; empty for a message that is not durable."""

    @property
    def place(self) -> int:
        """The queue or address whose swap file holds the message, if it is not durable."""
        return (self.targets[0] if self.targets else self.address).record_id


class MessageAdder:
    """Adds messages, step by step. Its callers hold the store's lock."""

    def __init__(self, core: StoreCore, ids: StoreIds, discard: MessageDiscard) -> None:
        self._core = core
        self._ids = ids
        self._discard = discard

    def add_whole(
        self, message: Message, data: bytes, queues: Sequence[str], tx: int, wanted_id: int, *, checked: bool
    ) -> Pending:
        """Store and route a message whose body is in its record's data.

        Hot path: a durable message to one durable queue, outside of transactions.
        """
        plain = not (tx or wanted_id or message.duplicate_id or self._ids.chosen) and message.durable
        if plain and len(queues) == 1:
            state = self._core.enter()
            address, queue = state.address(message.address), state.queue(queues[0])
            if queue.config.durable:
                return self._add_to_one(message, data, address, queue)
        return self.add(Outgoing(message, data, checked=checked), queues, tx, wanted_id)

    def _add_to_one(self, message: Message, data: bytes, address: AddressEntry, queue: QueueEntry) -> Pending:
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

    def add(self, out: Outgoing, queues: Iterable[str], tx: int, wanted_id: int) -> Pending:
        """Store and route a message."""
        state = self._core.enter()
        txn = self._core.transactions.accepting(tx) if tx else None
        adding = self.begin(state, out, queues, wanted_id, txn)
        completion = self._core.journal.append_all(adding.operations, tx=tx) if adding.operations else None
        if txn is None:
            return self.finish(state, out, adding, completion)
        self.finish_in(txn, state, out, adding)
        return Pending(adding.message_id) if completion is None else Pending(adding.message_id, completion)

    def begin(
        self,
        state: QueueState,
        out: Outgoing,
        queues: Iterable[str],
        wanted_id: int,
        txn: StoreTransaction | None = None,
    ) -> Adding:
        """Check everything before the journal is asked. A message that is not durable is stored from here on."""
        message = out.message
        address = state.address(message.address)
        targets = [state.queue(name) for name in queues]
        require_routable(message.address, targets)
        message_id = self._ids.for_message(address, wanted_id, durable=message.durable)
        window, slot = self.slot(address, message, txn, checked=out.checked)
        adding = Adding(message_id, address, targets, window, slot, [])
        if message.durable:
            adding.operations = message_operations(out, adding)
        else:
            self.keep_volatile(out, adding, chosen=bool(wanted_id))
        return adding

    def finish(self, state: QueueState, out: Outgoing, adding: Adding, completion: Completion | None) -> Pending:
        """Note that the journal has accepted the message. It arrives in its queues when its group is durable."""
        message, message_id, targets = out.message, adding.message_id, adding.targets
        if adding.window is not None:
            adding.window.enter(message.duplicate_id, adding.slot)
        self._know(state, message_id, adding.address.record_id, out)
        if adding.operations and completion is not None:
            self._core.cache.put(completion, message_id, out.data)
        for queue in targets:
            queue_id = queue.record_id
            state.route(message_id, queue_id, due=message.due)
            if completion is not None and adding.operations and queue.config.durable:
                self._core.effects.arrives(completion, message_id, queue_id)
            else:
                state.arrive(message_id, queue_id)
        if not targets:
            self._discard.unrouted.add([message_id], adding.address.record_id)
        return Pending(message_id) if completion is None else Pending(message_id, completion)

    def finish_in(self, txn: StoreTransaction, state: QueueState, out: Outgoing, adding: Adding) -> None:
        """Note that the journal has accepted the message in a transaction."""
        message, message_id, durable = out.message, adding.message_id, out.message.durable
        if durable:
            txn.keep_body(message_id, out.data, self._core.settings.transaction_bodies_bytes_max)
        if adding.window is not None:
            txn.reservations.append(adding.window.reserve(message.duplicate_id, adding.slot, txn.tx))
        self._know(state, message_id, adding.address.record_id, out)
        txn.stored[message_id] = durable
        self._core.transactions.stored_in[message_id] = txn.tx
        self._discard.unrouted.add([message_id], adding.address.record_id)
        txn.addresses.add(adding.address.record_id)
        for queue in adding.targets:
            state.route(message_id, queue.record_id, due=message.due, tx=txn.tx)
            txn.route(message_id, queue.record_id, durable=durable and queue.config.durable)

    def slot(
        self, address: AddressEntry, message: Message, txn: StoreTransaction | None, *, checked: bool = False
    ) -> tuple[DuplicateWindow | None, int]:
        """The window for a message's duplicate-detection id, and the id's slot there; None if the message has no such
        id."""
        if not (message.duplicate_id and address.duplicate_window):
            return None, 0
        window, slots = self.slots(address, [message.duplicate_id], txn, checked=checked)
        return window, slots[0] if slots else 0

    def slots(
        self, address: AddressEntry, duplicate_ids: Sequence[bytes], txn: StoreTransaction | None, *, checked: bool
    ) -> tuple[DuplicateWindow | None, Sequence[int]]:
        """The window for the duplicate-detection ids of several messages, and their slots there; None if there are no
        ids.

        One duplicate refuses all of them. Ids that are `checked` are not compared with the window, but they need free
        slots. Raises DuplicateMessageError, FullError (other transactions reserve all slots).
        """
        if not (duplicate_ids and address.duplicate_window):
            return None, ()
        window = self._core.windows[address.record_id]
        try:
            if not checked:
                window.check_all(duplicate_ids)
            return window, window.next_slots(len(duplicate_ids), 0 if txn is None else txn.tx)
        except DuplicateMessageError as error:
            if txn is not None:
                txn.refused = error
            raise
        except FullError:
            if not checked:
                raise
            return None, ()

    def keep_volatile(self, out: Outgoing, adding: Adding, *, chosen: bool) -> None:
        self._core.volatile.put(adding.place, adding.message_id, out.data)
        if chosen:
            self._ids.chosen.add(adding.message_id)

    def require_size(self, message: Message) -> None:
        """Raises MessageTooLargeError for a body above `message_bytes_max`."""
        bytes_max = self._core.settings.message_bytes_max
        if len(message.body) > bytes_max:
            raise MessageTooLargeError(f"a body of {len(message.body)} bytes is over {bytes_max} (message_bytes_max)")

    def in_chunks(
        self, message: Message, virtual_shard: int, others: Container[int] = ()
    ) -> tuple[Outgoing, list[tuple[int, bytes]]]:
        """A large message without its body, and the chunks of the body as (id, data). No chunk gets an id of
        `others`."""
        size = self._core.settings.chunk_bytes
        chunks: list[tuple[int, bytes]] = []
        for start in range(0, len(message.body), size):
            chunk_id = self._ids.issue(virtual_shard, durable=message.durable)
            while chunk_id in others:
                chunk_id = self._ids.issue(virtual_shard, durable=message.durable)
            chunks.append((chunk_id, message.body[start : start + size]))
        bodiless, ids = replace(message, body=b""), [chunk_id for chunk_id, _ in chunks]
        data = encode_message(bodiless, chunks=ids, body_bytes=len(message.body))
        return Outgoing(bodiless, data, ids, len(message.body)), chunks

    def _know(self, state: QueueState, message_id: int, address_id: int, out: Outgoing) -> None:
        message = out.message
        state.store(
            message_id,
            address_id,
            priority=message.priority,
            size=len(out.data) + out.body_bytes,
            expires=message.expires,
            timestamp=message.timestamp,
            due=message.due,
            durable=message.durable,
            chunks=out.chunks,
        )


def require_routable(address: str, targets: Sequence[QueueEntry]) -> None:
    """Raises StoreError for queues of another address, or for a queue that is named twice."""
    for queue in targets:
        if queue.config.address != address:
            raise StoreError(f"queue {queue.config.name} is of address {queue.config.address}, not {address}")
    if len(targets) > 1 and len({queue.record_id for queue in targets}) < len(targets):
        raise StoreError("a message is routed to a queue once")


def message_operations(out: Outgoing, adding: Adding) -> list[PlainOperation]:
    """Operations that store a durable message, route it to its durable queues, and enter its duplicate-detection id."""
    message_id = adding.message_id
    operations: list[PlainOperation] = [(ADD, message_id, MESSAGE, out.data, False, 0)]
    operations += [
        (UPDATE, message_id, ROUTE, b"", False, queue.record_id) for queue in adding.targets if queue.config.durable
    ]
    if adding.window is not None:
        entered = encode_duplicate(out.message.duplicate_id)
        operations.append((UPDATE, adding.address.record_id, DUPLICATE, entered, True, adding.slot))
    return operations
