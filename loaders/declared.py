"""Addresses, queues and bindings of a load. They are told in any order, and told again when they change.

Entries that can be listed are listed at once. An entry that conflicts with another one waits for `complete`, which
raises an error if the conflict remains: a queue that is told before its address, or a name whose old queue was not yet
told to be deleted.
"""

from __future__ import annotations

from journal.errors import AddressExistsError, AddressInUseError, AddressMissingError, QueueExistsError
from journal.store.model import QueueConfig
from journal.store.queues.state import QueueState

Binding = tuple[int, str, str]
"""A binding: the queue's record id, the key and the filter."""


class Declared:
    """The addresses, queues and bindings that were told last, by record id."""

    def __init__(self, state: QueueState) -> None:
        self._state = state
        self._addresses: dict[int, tuple[str, int]] = {}
        self._queues: dict[int, QueueConfig] = {}
        self._bindings: dict[int, Binding] = {}
        self._unlisted: set[int] = set()
        """Addresses and queues that wait for `complete`."""
        self._leaving: set[str] = set()
        """Names of addresses that were deleted but still have queues."""

    # ---- added or changed --------------------------------------------------------------------------------------------

    def address(self, record_id: int, name: str, duplicate_window: int) -> None:
        told = (name, duplicate_window)
        if self._addresses.get(record_id) == told:
            return
        self.forget_address(record_id)
        self._addresses[record_id] = told
        try:
            self._state.add_address(record_id, name, duplicate_window)
        except AddressExistsError:
            self._unlisted.add(record_id)

    def queue(self, record_id: int, config: QueueConfig) -> None:
        """The queue of a record id. Raises StateError for a queue that was forgotten."""
        if self._queues.get(record_id) == config:
            return
        self._state.require_not_destroyed(record_id)
        self._unlist(record_id)
        self._queues[record_id] = config
        try:
            self._state.add_queue(record_id, config)
        except (AddressMissingError, QueueExistsError):
            self._unlisted.add(record_id)

    def binding(self, record_id: int, binding: Binding) -> None:
        self._bindings[record_id] = binding

    # ---- deleted ---------------------------------------------------------------------------------------------------

    def forget_address(self, record_id: int) -> None:
        """Forget an address, whether it was told or not."""
        told = self._addresses.pop(record_id, None)
        if told is None or self._was_unlisted(record_id):
            return
        name, _ = told
        try:
            self._state.remove_address(name)
        except AddressInUseError:
            self._leaving.add(name)

    def forget_queue(self, record_id: int) -> None:
        """Forget a queue and all its data, whether it was told or not. Later calls about it are ignored."""
        self._unlist(record_id)
        self._state.unload_queue(record_id)

    def forget_binding(self, record_id: int) -> None:
        del self._bindings[record_id]

    def _unlist(self, record_id: int) -> None:
        told = self._queues.pop(record_id, None)
        if told is not None and not self._was_unlisted(record_id):
            self._state.unlist_queue(self._state.queue(told.name))

    def _was_unlisted(self, record_id: int) -> bool:
        if record_id not in self._unlisted:
            return False
        self._unlisted.remove(record_id)
        return True

    # ---- everything was told ---------------------------------------------------------------------------------------

    def complete(self) -> None:
        """List all entries that wait. Raises StoreError for one that still conflicts."""
        state = self._state
        if self._leaving:
            for entry in [entry for entry in state.queues() if entry.config.address in self._leaving]:
                state.unlist_queue(entry)
                self._unlisted.add(entry.record_id)
            for name in self._leaving:
                state.remove_address(name)
            self._leaving.clear()
        waiting = sorted(self._unlisted)
        for record_id in waiting:
            if record_id in self._addresses:
                state.add_address(record_id, *self._addresses[record_id])
        for record_id in waiting:
            if record_id in self._queues:
                state.add_queue(record_id, self._queues[record_id])
        self._unlisted.clear()

    def bind(self) -> list[int]:
        """Give the queues their bindings, after `complete`. Returns the bindings whose queues do not exist."""
        state = self._state
        orphans: list[int] = []
        for record_id, binding in sorted(self._bindings.items()):
            if state.has_queue(binding[0]):
                state.add_binding(record_id, *binding)
            else:
                orphans.append(record_id)
        return orphans
