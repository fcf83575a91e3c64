"""The ids of records that a message store adds: its journal issues them, or its caller (the first store of a chain)
chooses them."""

from __future__ import annotations

from journal.errors import StoreError
from journal.store.operations.core import StoreCore
from journal.store.queues.entry import AddressEntry
from journal.wire.ids import SHARD_MASK


class StoreIds:
    """Ids of messages, chunks, queues and bindings. The store's lock guards them."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self.chosen: set[int] = set()
        """Ids that callers chose for messages that are not durable.

        The journal does not know these ids. If it issues one of them, the next id is taken instead.
        """

    def new(self, address: AddressEntry, wanted: int = 0, *, durable: bool = True) -> int:
        """An id in the virtual shard of an address: the caller's `wanted` id if it is given, else a new one.

        Raises StoreError if the caller's id is in another virtual shard, or in use.
        """
        virtual_shard = address.record_id & SHARD_MASK
        if not wanted:
            record_id = self.issue(virtual_shard, durable=durable)
            while self._core.state.is_known(record_id):  # it can be the id of a binding that was chosen by a caller
                record_id = self.issue(virtual_shard, durable=durable)
            return record_id
        if wanted & SHARD_MASK != virtual_shard:
            raise StoreError(f"id {wanted} is not in the virtual shard of address {address.name} ({virtual_shard})")
        if self._is_here(wanted) or self._core.journal.is_taken(wanted):
            raise StoreError(f"id {wanted} is in use")
        return wanted

    def for_message(self, address: AddressEntry, wanted: int, *, durable: bool) -> int:
        """An id for a message: the caller's `wanted` id if it is given, else a new one. Raises StoreError as `new`
        does."""
        if wanted:
            return self.new(address, wanted)
        return self.issue(address.record_id & SHARD_MASK, durable=durable)

    def issue(self, virtual_shard: int, *, durable: bool) -> int:
        """An id that no record and nothing else in the store has. It is unique before an activation, too."""
        journal = self._core.journal
        issue = journal.new_id if durable else journal.new_volatile_id
        record_id = issue(virtual_shard)
        while record_id in self.chosen:
            self.chosen.remove(record_id)  # the journal does not issue this id again
            record_id = issue(virtual_shard)
        return record_id

    def issue_many(self, virtual_shard: int, count: int) -> list[int]:
        """`count` ids for records."""
        if not self.chosen:
            return self._core.journal.new_ids([virtual_shard] * count)
        return [self.issue(virtual_shard, durable=True) for _ in range(count)]

    def _is_here(self, record_id: int) -> bool:
        """Whether a thing that the store knows has that id. The store knows everything that is not durable, and some
        durable things."""
        core = self._core
        if core.state.is_known(record_id) or core.state.has_queue(record_id) or record_id in core.volatile:
            return True
        return any(txn.declares(record_id) for txn in core.transactions.declaring.values())
