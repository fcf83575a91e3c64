"""Addresses, queues and bindings of a message store: created and destroyed by their broker.

They exist for later calls at once, and durably when the operation completes. A queue that is not durable, and what is
bound to it, is in no journal.
"""

from __future__ import annotations

import zlib

from journal.errors import AddressInUseError, InvalidOperationError, JournalError, QueueInDoubtError
from journal.limits import VIRTUAL_SHARDS
from journal.store.base import StoreBase
from journal.store.duplicates import DuplicateWindow
from journal.store.model import QueueConfig
from journal.store.pending import Pending
from journal.store.queue_entry import BindingEntry
from journal.store.records import encode_address, encode_binding, encode_queue
from journal.v1.journal_pb2 import DELETE
from journal.v1.store_pb2 import ADDRESS, BINDING, QUEUE


def virtual_shard_of(address: str) -> int:
    """Where everything of an address lives."""
    return zlib.crc32(address.encode()) % VIRTUAL_SHARDS


class Declaring(StoreBase):
    """Operations on what messages go through."""

    def create_address(self, name: str, duplicate_window: int = 0) -> Pending:
        """An address; it remembers the last `duplicate_window` duplicate-detection ids. Raises AddressExistsError."""
        if not name:
            raise InvalidOperationError("an address has a name")
        data = encode_address(name, duplicate_window)
        with self._lock:
            state = self._enter()
            record_id = self._journal.new_id(virtual_shard_of(name))
            state.add_address(record_id, name, duplicate_window)
            try:
                completion = self._journal.add(record_id, ADDRESS, data)
            except JournalError:
                state.remove_address(name)
                raise
            if duplicate_window:
                self._windows[record_id] = DuplicateWindow(record_id, duplicate_window)
            return Pending(record_id, completion)

    def destroy_address(self, name: str) -> Pending:
        """An address without queues; messages that no queue ever got go with it.

        Raises AddressMissingError, AddressInUseError (it has queues, or a transaction stores messages there).
        """
        with self._lock:
            state = self._enter()
            entry = state.address(name)
            unrouted = [message for message, address in self._unrouted.items() if address == entry.record_id]
            stored_in = {self._stored_in[message] for message in unrouted if message in self._stored_in}
            if stored_in:
                raise AddressInUseError(f"transactions {sorted(stored_in)} store messages at address {name}")
            state.remove_address(name)
            try:
                completion = self._journal.delete(entry.record_id)
            except JournalError:
                state.add_address(entry.record_id, name, entry.duplicate_window)
                raise
            self._windows.pop(entry.record_id, None)
            self._discard(unrouted)
            return Pending(entry.record_id, completion)

    def create_queue(self, config: QueueConfig) -> Pending:
        """A queue of an address that exists. Raises AddressMissingError, QueueExistsError."""
        if not config.name:
            raise InvalidOperationError("a queue has a name")
        data = encode_queue(config)
        with self._lock:
            state = self._enter()
            record_id = self._new_id(state.address(config.address))
            state.add_queue(record_id, config)
            if not config.durable:
                return Pending(record_id)
            try:
                return Pending(record_id, self._journal.add(record_id, QUEUE, data))
            except JournalError:
                state.remove_queue(config.name)
                raise

    def destroy_queue(self, name: str) -> Pending:
        """A queue with what it holds. Messages whose last reference that was are deleted in bounded groups behind it.

        Raises QueueMissingError, QueueInDoubtError (transactions whose settlement is not durable
        add messages to it or have acknowledged some).
        """
        with self._lock:
            state = self._enter()
            entry = state.queue(name)
            record_id = entry.record_id
            unsettled = [*self._transactions.values(), *self._settling]
            touching = [txn.tx for txn in unsettled if txn.touches(record_id)]
            if touching:
                raise QueueInDoubtError(f"transactions {sorted(touching)} hold messages of queue {name}: settle them")
            pending = Pending(record_id)
            if entry.config.durable:
                going = [record_id, *(binding.record_id for binding in state.bindings(record_id))]
                pending.completion = self._journal.append_all([(DELETE, each, 0, b"", False, 0) for each in going])
            self._discard(state.remove_queue(name))
            return pending

    def bind(self, queue: str, key: str = "", filter: str = "", *, id: int = 0) -> Pending:
        """A binding of a queue: the key and filter by which its broker routes to it. Raises QueueMissingError."""
        with self._lock:
            state = self._enter()
            entry = state.queue(queue)
            record_id = self._new_id(state.address(entry.config.address), id)
            data = encode_binding(entry.record_id, key, filter)
            completion = None
            if entry.config.durable:
                completion = self._journal.add(record_id, BINDING, data)
            state.add_binding(record_id, entry.record_id, key, filter)
            return Pending(record_id) if completion is None else Pending(record_id, completion)

    def unbind(self, binding_id: int) -> Pending:
        """Raises StoreError if there is no such binding."""
        with self._lock:
            state = self._enter()
            binding = state.remove_binding(binding_id)
            if not state.queue_of(binding.queue_id).config.durable:
                return Pending(binding_id)
            try:
                return Pending(binding_id, self._journal.delete(binding_id))
            except JournalError:
                state.add_binding(*binding)
                raise

    def bindings(self, queue: str) -> list[BindingEntry]:
        """Raises QueueMissingError."""
        with self._lock:
            state = self._enter()
            return state.bindings(state.queue(queue).record_id)
