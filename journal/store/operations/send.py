"""Messages into a message store: stored once, routed to queues of their address, in a transaction or not.

A message is visible in a queue once its group is durable. One that is not durable is visible at once, even before
durable ones that were sent earlier and are on their way (as JMS allows); it never reaches the journal.

Hot path: `send` to one queue, outside of transactions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import (
    DuplicateMessageError,
    FullError,
    JournalError,
    MessageMissingError,
    MessageTooLargeError,
    StoreError,
)
from journal.store.duplicates import DuplicateWindow
from journal.store.model import Message
from journal.store.operations.transactions import Settling
from journal.store.pending import Pending
from journal.store.queues.entry import AddressEntry, QueueEntry
from journal.store.queues.state import QueueState
from journal.store.records import encode_duplicate, encode_message, encode_reference, require_due
from journal.store.transactions import StoreTransaction
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.v1.store_pb2 import DUPLICATE, MESSAGE, REFERENCE, ROUTE, Reference
from journal.wire.ids import SHARD_MASK


class Outgoing:
    """A message on its way into the store: its record's data, and a large one's chunks."""

    __slots__ = ("body_bytes", "checked", "chunks", "data", "message")

    def __init__(
        self, message: Message, data: bytes, chunks: Sequence[int] = (), body_bytes: int = 0, *, checked: bool = False
    ) -> None:
        """`checked`: its duplicate-detection id was, by the first store of a chain, whose answer holds."""
        self.message = message
        self.data = data
        self.chunks = tuple(chunks)
        self.body_bytes = body_bytes
        self.checked = checked


class Adding:
    """What a message adds, between its acceptance by the store and by the journal."""

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
        """Empty for what is not durable."""

    @property
    def place(self) -> int:
        """Whose swap file it goes to, if it is not durable."""
        return (self.targets[0] if self.targets else self.address).record_id


class Sending(Settling):
    """Operations that add messages and references."""

    def _send_to_one(self, message: Message, data: bytes, address: AddressEntry, queue: QueueEntry) -> Pending:
        """What `_send` does for most: a durable message without a duplicate id, to one durable queue, in no
        transaction."""
        if queue.config.address != message.address:
            require_routable(message.address, [queue])
        queue_id = queue.record_id
        message_id, completion = self._journal.add_with_update(queue_id & SHARD_MASK, MESSAGE, data, ROUTE, queue_id)
        self._cache.put(completion, message_id, data)
        self._state.store_and_route(
            message_id,
            address.record_id,
            queue,
            message.priority,
            len(data),
            message.expires,
            message.timestamp,
            message.due,
        )
        self._arrives(completion, message_id, queue_id)
        return Pending(message_id, completion)

    def _send(self, out: Outgoing, queues: Iterable[str], tx: int, wanted_id: int) -> Pending:
        """Store and route a message; with the lock held."""
        state = self._enter()
        txn = self._transaction(tx) if tx else None
        adding = self._begin_send(state, out, queues, wanted_id, txn)
        completion = self._journal.append_all(adding.operations, tx=tx) if adding.operations else None
        if txn is None:
            return self._finish_send(state, out, adding, completion)
        self._finish_send_in(txn, state, out, adding)
        return Pending(adding.message_id) if completion is None else Pending(adding.message_id, completion)

    def _begin_send(
        self,
        state: QueueState,
        out: Outgoing,
        queues: Iterable[str],
        wanted_id: int,
        txn: StoreTransaction | None = None,
    ) -> Adding:
        """Check everything; what is not durable is kept already, under `message_id`."""
        message = out.message
        address = state.address(message.address)
        targets = [state.queue(name) for name in queues]
        require_routable(message.address, targets)
        message_id = self._message_id(address, wanted_id, durable=message.durable)
        window, slot = self._slot(address, message, txn, checked=out.checked)
        adding = Adding(message_id, address, targets, window, slot, [])
        if message.durable:
            adding.operations = message_operations(out, adding)
        else:
            self._keep_volatile(out, adding, chosen=bool(wanted_id))
        return adding

    def _finish_send(self, state: QueueState, out: Outgoing, adding: Adding, completion: Completion | None) -> Pending:
        """The journal has taken it: it is on its way into its queues."""
        message, message_id, targets = out.message, adding.message_id, adding.targets
        if adding.window is not None:
            adding.window.enter(message.duplicate_id, adding.slot)
        self._know(state, message_id, adding.address.record_id, out)
        if adding.operations and completion is not None:
            self._cache.put(completion, message_id, out.data)
        for queue in targets:
            queue_id = queue.record_id
            state.route(message_id, queue_id, due=message.due)
            if completion is not None and adding.operations and queue.config.durable:
                self._arrives(completion, message_id, queue_id)
            else:
                state.arrive(message_id, queue_id)
        if not targets:
            self._unrouted.add([message_id], adding.address.record_id)
        return Pending(message_id) if completion is None else Pending(message_id, completion)

    def _finish_send_in(self, txn: StoreTransaction, state: QueueState, out: Outgoing, adding: Adding) -> None:
        """The same in a transaction."""
        message, message_id, durable = out.message, adding.message_id, out.message.durable
        if durable:
            txn.keep_body(message_id, out.data, self._settings.transaction_bodies_bytes_max)
        if adding.window is not None:
            txn.reservations.append(adding.window.reserve(message.duplicate_id, adding.slot, txn.tx))
        self._know(state, message_id, adding.address.record_id, out)
        txn.stored[message_id] = durable
        self._stored_in[message_id] = txn.tx
        self._unrouted.add([message_id], adding.address.record_id)
        txn.addresses.add(adding.address.record_id)
        for queue in adding.targets:
            state.route(message_id, queue.record_id, due=message.due, tx=txn.tx)
            txn.route(message_id, queue.record_id, durable=durable and queue.config.durable)

    def _message_id(self, address: AddressEntry, wanted: int, *, durable: bool) -> int:
        if wanted:
            return self._new_id(address, wanted)
        return self._issued_id(address.record_id & SHARD_MASK, durable=durable)

    def _slot(
        self, address: AddressEntry, message: Message, txn: StoreTransaction | None, *, checked: bool = False
    ) -> tuple[DuplicateWindow | None, int]:
        """The window that the message's duplicate id enters, if it does, and its slot there."""
        if not (message.duplicate_id and address.duplicate_window):
            return None, 0
        window, slots = self._slots(address, [message.duplicate_id], txn, checked=checked)
        return window, slots[0] if slots else 0

    def _slots(
        self, address: AddressEntry, duplicate_ids: Sequence[bytes], txn: StoreTransaction | None, *, checked: bool
    ) -> tuple[DuplicateWindow | None, Sequence[int]]:
        """The window that duplicate ids enter together, if they do, and their slots there.

        A duplicate refuses the whole transaction. Those that are `checked` enter whatever the window says of them, if
        slots are free.
        """
        if not (duplicate_ids and address.duplicate_window):
            return None, ()
        window = self._windows[address.record_id]
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

    def _keep_volatile(self, out: Outgoing, adding: Adding, *, chosen: bool) -> None:
        self._volatile.put(adding.place, adding.message_id, out.data)
        if chosen:
            self._chosen.add(adding.message_id)

    def _require_size(self, message: Message) -> None:
        """Raises MessageTooLargeError."""
        if len(message.body) > self._settings.message_bytes_max:
            raise MessageTooLargeError(
                f"a body of {len(message.body)} bytes is over {self._settings.message_bytes_max} (message_bytes_max)"
            )

    def _in_chunks(
        self, message: Message, virtual_shard: int, others: Container[int] = ()
    ) -> tuple[Outgoing, list[tuple[int, bytes]]]:
        """A large message with its body in chunks, and these: id and data. None of the `others` is one's id."""
        size = self._settings.chunk_bytes
        chunks: list[tuple[int, bytes]] = []
        for start in range(0, len(message.body), size):
            chunk_id = self._issued_id(virtual_shard, durable=message.durable)
            while chunk_id in others:
                chunk_id = self._issued_id(virtual_shard, durable=message.durable)
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

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        """Give a stored message to one more queue of its address; not before `due` if it is given.

        After an acknowledge of an earlier route that is durable, it begins a new reference. Raises
        MessageMissingError (or another transaction stores it), QueueMissingError, StoreError (the queue is of another
        address, or has it: arriving, or acknowledged and not yet durably so, included), InvalidOperationError (a time
        that is none).
        """
        require_due(due)
        with self._lock:
            state = self._enter()
            entry, target = state.message(message_id), state.queue(queue)
            queue_id = target.record_id
            stored_in = self._stored_in.get(message_id, tx)
            if stored_in != tx or not (entry.references or message_id in self._unrouted):
                raise MessageMissingError(f"message {message_id} is not there to be routed", message_id)
            require_routable(entry.address, [target])
            txn = self._transaction(tx) if tx else None
            durable = entry.durable and target.config.durable
            state.route(message_id, queue_id, due=due or entry.due, tx=tx)
            try:
                pending = Pending(message_id)
                if durable:
                    operations = _route_operations(message_id, queue_id, due if due != entry.due else 0)
                    pending.completion = self._journal.append_all(operations, tx=tx)
            except JournalError:
                state.withdraw(message_id, queue_id)
                raise
            if txn is not None:
                txn.route(message_id, queue_id, durable=durable)
                return pending
            self._unrouted.discard(message_id)
            if durable:
                self._arrives(pending.completion, message_id, queue_id)
            else:
                state.arrive(message_id, queue_id)
            return pending

    def delete(self, message_id: int) -> Pending:
        """Delete a message that was stored, and that no queue has. (One that queues have goes with the last of them.)

        Raises MessageMissingError (not there, or on its way out), StoreError (a queue has it, or is about to; or a
        transaction stores it, whose rollback is what deletes it).
        """
        with self._lock:
            state = self._enter()
            entry = state.message(message_id)
            if entry.references:
                raise StoreError(f"message {message_id} is in queues: acknowledge it there")
            if message_id in self._stored_in:
                raise StoreError(f"transaction {self._stored_in[message_id]} stores message {message_id}: roll it back")
            if message_id not in self._unrouted:
                raise MessageMissingError(f"message {message_id} is not there to be deleted", message_id)
            pending = Pending(message_id)
            if entry.durable:
                deletes: list[PlainOperation] = [
                    (DELETE, each, 0, b"", False, 0) for each in (message_id, *entry.chunks)
                ]
                pending.completion = self._journal.append_all(deletes)
            self._unrouted.discard(message_id)
            state.forget(message_id)
            self._drop_bodies(message_id, entry.chunks)
            return pending


def require_routable(address: str, targets: Sequence[QueueEntry]) -> None:
    """Raises StoreError for queues of another address, or one queue twice."""
    for queue in targets:
        if queue.config.address != address:
            raise StoreError(f"queue {queue.config.name} is of address {queue.config.address}, not {address}")
    if len(targets) > 1 and len({queue.record_id for queue in targets}) < len(targets):
        raise StoreError("a message is routed to a queue once")


def message_operations(out: Outgoing, adding: Adding) -> list[PlainOperation]:
    """What stores a durable message, routes it to the durable ones of its queues, and enters its duplicate id."""
    message_id = adding.message_id
    operations: list[PlainOperation] = [(ADD, message_id, MESSAGE, out.data, False, 0)]
    operations += [
        (UPDATE, message_id, ROUTE, b"", False, queue.record_id) for queue in adding.targets if queue.config.durable
    ]
    if adding.window is not None:
        entered = encode_duplicate(out.message.duplicate_id)
        operations.append((UPDATE, adding.address.record_id, DUPLICATE, entered, True, adding.slot))
    return operations


def _route_operations(message_id: int, queue_id: int, due: int) -> list[PlainOperation]:
    operations: list[PlainOperation] = [(UPDATE, message_id, ROUTE, b"", False, queue_id)]
    if due:
        scheduled = encode_reference(Reference.SCHEDULED, due=due)
        operations.append((UPDATE, message_id, REFERENCE, scheduled, True, queue_id))
    return operations
