"""What a chain asks of its stores, and what it raises when one of them fails."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from typing import Protocol

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import JournalError, OutcomeUnknownError
from journal.store.bodies.chunks import BodyStream
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.operations.look import QueueInfo
from journal.store.operations.transactions import Prepared
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.transactions import TransactionInfo


class ChainError(OutcomeUnknownError):
    """Raised when a store of a chain fails, and to every later call. `store` names it; the cause says why.

    The operation is in some stores and not in others. Close the chain: the first store is right.
    """

    def __init__(self, store: str, reason: JournalError) -> None:
        super().__init__(f"{store}: {type(reason).__name__}: {reason}")
        self.store = store


class ChainedStore(Protocol):
    """A store of a chain: `MessageStore` is one. With an `id` or `tx` of 0, and without `ids`, it issues them; others
    are taken as they are.

    What the first store has decided is not decided again: a duplicate-detection id that it found new is `checked`, and
    so is what it hands out; of the dead and the expired it tells the `queues`.
    """

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending: ...

    def destroy_address(self, name: str, tx: int = 0) -> Pending: ...

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending: ...

    def destroy_queue(self, name: str, tx: int = 0) -> Pending: ...

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0, *, id: int = 0) -> Pending: ...

    def unbind(self, binding_id: int, tx: int = 0) -> Pending: ...

    def store(self, message: Message, tx: int = 0, *, id: int = 0, checked: bool = False) -> Pending: ...

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending: ...

    def delete(self, message_id: int) -> Pending: ...

    def send(
        self, message: Message, queues: Sequence[str], tx: int = 0, *, id: int = 0, checked: bool = False
    ) -> Pending: ...

    def send_all(
        self,
        messages: Sequence[Message],
        queues: Sequence[str],
        tx: int = 0,
        *,
        ids: Sequence[int] = (),
        checked: bool = False,
    ) -> PendingAll: ...

    def store_stream(
        self,
        message: Message,
        body: Iterable[bytes],
        queues: Sequence[str] = (),
        tx: int = 0,
        *,
        id: int = 0,
        checked: bool = False,
    ) -> Pending: ...

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0
    ) -> Pending: ...

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending: ...

    def acknowledge_all(self, message_ids: Sequence[int], queue: str, holder: str = "", tx: int = 0) -> PendingAll: ...

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0, *, checked: bool = False) -> Pending: ...

    def take(self, queue: str, holder: str) -> Delivery | None: ...

    def release(
        self, message_id: int, queue: str, holder: str = "", tx: int = 0, *, counts: bool = True
    ) -> Pending: ...

    def release_holder(self, name: str, *, counts: bool = True) -> Pending: ...

    def reattach(self, holder: str) -> list[tuple[int, str]]: ...

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending: ...

    def move(
        self,
        message_id: int,
        queue: str,
        address: str,
        queues: Sequence[str],
        reason: str,
        *,
        id: int = 0,
        tx: int = 0,
    ) -> Moved: ...

    def expire(self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0) -> Moved: ...

    def dead_letter(
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0
    ) -> Moved: ...

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending: ...

    def begin(self, tx: int = 0) -> int: ...

    def is_empty(self, tx: int) -> bool: ...

    def prepare(self, tx: int, data: bytes = b"") -> Prepared: ...

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending: ...

    def rollback(self, tx: int) -> Pending: ...

    def transactions(self) -> list[TransactionInfo]: ...

    def transaction(self, tx: int) -> TransactionInfo: ...

    def in_doubt(self) -> list[TransactionInfo]: ...

    def message(self, message_id: int, *, body: bool = True) -> Message: ...

    def body_stream(self, message_id: int) -> BodyStream: ...

    def explain(self, record_id: int) -> list[ReferenceInfo]: ...

    def describe(self, message_id: int) -> MessageEntry: ...

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]: ...

    def queues(self) -> list[QueueInfo]: ...

    def queue(self, name: str) -> QueueInfo: ...

    def addresses(self) -> list[AddressEntry]: ...

    def bindings(self, queue: str) -> list[BindingEntry]: ...

    def holders(self) -> list[str]: ...

    def next_due(self) -> int: ...

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]: ...

    def tick(self) -> int: ...

    def room(self) -> Completion: ...

    def flush(self) -> Completion: ...

    def close(self) -> None: ...
