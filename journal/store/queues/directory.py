"""Addresses, queues and bindings of a QueueState."""

from __future__ import annotations

from journal.errors import (
    AddressExistsError,
    AddressInUseError,
    AddressMissingError,
    QueueExistsError,
    QueueMissingError,
    StoreError,
)
from journal.store.model import QueueConfig
from journal.store.queues.entry import AddressEntry, BindingEntry, QueueEntry
from journal.store.queues.tables import QueueTables

Subscription = tuple[str, str]
"""A client's id and the name of its subscription. The pair is unique in a journal, at all addresses, as in AMQP and
JMS."""


class QueueDirectory:
    """The addresses, queues and bindings by name, above the tables that hold queues by record id."""

    def __init__(self, tables: QueueTables) -> None:
        self._tables = tables
        self._addresses: dict[str, AddressEntry] = {}
        self._address_of: dict[int, AddressEntry] = {}
        self._queue_ids: dict[str, int] = {}
        self._queues_of: dict[str, dict[int, None]] = {}
        """Queues by the name of their address."""
        self._subscriptions: dict[Subscription, set[int]] = {}
        """Queues by their durable subscription. In an old journal, one subscription may have several queues."""
        self._bindings: dict[int, BindingEntry] = {}
        self._bindings_of: dict[int, dict[int, None]] = {}

    # ---- addresses -------------------------------------------------------------------------------------------------

    def require_new_address(self, name: str) -> None:
        """Raises AddressExistsError if the address's name is taken."""
        if name in self._addresses:
            raise AddressExistsError(f"address {name!r} exists")

    def add_address(self, record_id: int, name: str, duplicate_window: int = 0) -> AddressEntry:
        """Add an address. Raises AddressExistsError if its name is taken."""
        self.require_new_address(name)
        entry = AddressEntry(record_id, name, duplicate_window)
        self._addresses[name] = self._address_of[record_id] = entry
        return entry

    def unused_address(self, name: str) -> AddressEntry:
        """The address of this name, which has no queues. Raises AddressMissingError, AddressInUseError."""
        entry = self.address(name)
        if entry.queues:
            raise AddressInUseError(f"address {name!r} has {entry.queues} queues")
        return entry

    def remove_address(self, name: str) -> AddressEntry:
        """Remove an address without queues. Raises AddressMissingError, AddressInUseError."""
        entry = self.unused_address(name)
        del self._addresses[name], self._address_of[entry.record_id]
        return entry

    def address(self, name: str) -> AddressEntry:
        """The address of this name. Raises AddressMissingError."""
        entry = self._addresses.get(name)
        if entry is None:
            raise AddressMissingError(f"there is no address {name!r}")
        return entry

    def has_address(self, name: str) -> bool:
        return name in self._addresses

    def addresses(self) -> list[AddressEntry]:
        return list(self._addresses.values())

    # ---- queues ----------------------------------------------------------------------------------------------------

    def require_new_name(self, config: QueueConfig) -> None:
        """Raises QueueExistsError if the queue's name is taken."""
        if config.name in self._queue_ids:
            raise QueueExistsError(f"queue {config.name!r} exists")

    def add_queue(self, record_id: int, config: QueueConfig) -> QueueEntry:
        """Add a queue. Raises QueueExistsError if its name is taken, AddressMissingError if its address is missing."""
        self.require_new_name(config)
        self.address(config.address).queues += 1
        self._queues_of.setdefault(config.address, {})[record_id] = None
        tables = self._tables
        entry = tables.queues.get(record_id)
        if entry is None:
            entry = tables.queues[record_id] = QueueEntry(record_id, config, tables.references, tables.first)
        entry.config = config
        self._queue_ids[config.name] = record_id
        subscription = subscription_of(config)
        if subscription is not None:
            self._subscriptions.setdefault(subscription, set()).add(record_id)
        return entry

    def require_new_subscription(self, config: QueueConfig) -> None:
        """Raises QueueExistsError if the client has that durable subscription already, at any address."""
        if subscription_of(config) in self._subscriptions:
            raise QueueExistsError(f"subscription {config.subscription!r} of client {config.client_id!r} exists")

    def unlist_queue(self, entry: QueueEntry) -> None:
        """Forget a queue's name, its subscription and its bindings."""
        config = entry.config
        del self._queue_ids[config.name]
        self._addresses[config.address].queues -= 1
        del self._queues_of[config.address][entry.record_id]
        if not self._queues_of[config.address]:
            del self._queues_of[config.address]
        subscription = subscription_of(config)
        if subscription is not None:
            self._subscriptions[subscription].discard(entry.record_id)
            if not self._subscriptions[subscription]:
                del self._subscriptions[subscription]
        for binding_id in self._bindings_of.pop(entry.record_id, ()):
            del self._bindings[binding_id]

    def queue(self, name: str) -> QueueEntry:
        """The queue of this name. Raises QueueMissingError."""
        record_id = self._queue_ids.get(name)
        if record_id is None:
            raise QueueMissingError(f"there is no queue {name!r}")
        return self._tables.queues[record_id]

    def queue_of(self, record_id: int) -> QueueEntry:
        """The queue with this record id. Raises QueueMissingError."""
        entry = self._tables.queues.get(record_id)
        if entry is None or entry.gone:
            raise QueueMissingError(f"there is no queue {record_id}")
        return entry

    def _is_gone(self, record_id: int) -> bool:
        entry = self._tables.queues.get(record_id)
        return entry is None or entry.gone

    def has_queue(self, record_id: int) -> bool:
        """Whether the queue exists; during a load, whether it was loaded already."""
        entry = self._tables.queues.get(record_id)
        return entry is not None and self._queue_ids.get(entry.config.name) == record_id

    def queues(self) -> list[QueueEntry]:
        return [*map(self._tables.queues.__getitem__, self._queue_ids.values())]

    def queues_of(self, address: str) -> list[QueueEntry]:
        """Queues of one address."""
        return [self._tables.queues[record_id] for record_id in self._queues_of.get(address, ())]

    # ---- bindings --------------------------------------------------------------------------------------------------

    def add_binding(self, record_id: int, queue_id: int, key: str = "", filter: str = "") -> BindingEntry:
        """Add a binding of a queue. Raises QueueMissingError."""
        self.queue_of(queue_id)
        binding = self._bindings[record_id] = BindingEntry(record_id, queue_id, key, filter)
        self._bindings_of.setdefault(queue_id, {})[record_id] = None
        return binding

    def binding(self, record_id: int) -> BindingEntry:
        """The binding with this record id. Raises StoreError if there is none."""
        binding = self._bindings.get(record_id)
        if binding is None:
            raise StoreError(f"there is no binding {record_id}")
        return binding

    def remove_binding(self, record_id: int) -> BindingEntry:
        """Remove the binding with this record id. Raises StoreError if there is none."""
        binding = self.binding(record_id)
        del self._bindings[record_id], self._bindings_of[binding.queue_id][record_id]
        return binding

    def bindings(self, queue_id: int) -> list[BindingEntry]:
        """The bindings of a queue. Raises QueueMissingError."""
        self.queue_of(queue_id)
        return [self._bindings[record_id] for record_id in self._bindings_of.get(queue_id, ())]


def subscription_of(config: QueueConfig) -> Subscription | None:
    """The durable subscription to which a queue belongs; None if it belongs to none."""
    return (config.client_id, config.subscription) if config.client_id or config.subscription else None
