"""What a chain of stores says of itself: what its first store says, which is right whatever the others hold."""

from __future__ import annotations

from collections.abc import Iterator

from journal.store.bodies.chunks import BodyStream
from journal.store.chain.ports import ChainedStore
from journal.store.model import Message, ReferenceInfo
from journal.store.operations.look import QueueInfo
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.transactions import TransactionInfo


class ChainLooking:
    """Operations that change nothing. They raise what the first store raises."""

    def __init__(self, first: ChainedStore) -> None:
        self._first = first

    # ---- messages --------------------------------------------------------------------------------------------------

    def message(self, message_id: int, *, body: bool = True) -> Message:
        return self._first.message(message_id, body=body)

    def body_stream(self, message_id: int) -> BodyStream:
        return self._first.body_stream(message_id)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        return self._first.explain(record_id)

    def describe(self, message_id: int) -> MessageEntry:
        return self._first.describe(message_id)

    # ---- queues ----------------------------------------------------------------------------------------------------

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        return self._first.browse(queue, limit)

    def queues(self) -> list[QueueInfo]:
        return self._first.queues()

    def queue(self, name: str) -> QueueInfo:
        return self._first.queue(name)

    def addresses(self) -> list[AddressEntry]:
        return self._first.addresses()

    def bindings(self, queue: str) -> list[BindingEntry]:
        return self._first.bindings(queue)

    def holders(self) -> list[str]:
        return self._first.holders()

    # ---- transactions and time -------------------------------------------------------------------------------------

    def is_empty(self, tx: int) -> bool:
        return self._first.is_empty(tx)

    def transactions(self) -> list[TransactionInfo]:
        return self._first.transactions()

    def transaction(self, tx: int) -> TransactionInfo:
        return self._first.transaction(tx)

    def in_doubt(self) -> list[TransactionInfo]:
        return self._first.in_doubt()

    def next_due(self) -> int:
        return self._first.next_due()

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        return self._first.expired(limit, agreed=agreed)
