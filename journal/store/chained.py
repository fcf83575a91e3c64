"""What a chain asks of its stores, and what it raises when one of them fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from journal.errors import JournalError, OutcomeUnknownError
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.pending import Pending


class ChainError(OutcomeUnknownError):
    """Raised when a store of a chain fails, and to every later call. `store` names it; the cause says why.

    The operation is in some stores and not in others. Close the chain: the first store is right.
    """

    def __init__(self, store: str, reason: JournalError) -> None:
        super().__init__(f"{store}: {type(reason).__name__}: {reason}")
        self.store = store


class ChainedStore(Protocol):
    """A store of a chain: `MessageStore` is one. With an `id` or `tx` of 0 it issues one; another is taken as it is."""

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending: ...

    def destroy_address(self, name: str, tx: int = 0) -> Pending: ...

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending: ...

    def destroy_queue(self, name: str, tx: int = 0) -> Pending: ...

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0, *, id: int = 0) -> Pending: ...

    def unbind(self, binding_id: int, tx: int = 0) -> Pending: ...

    def store(self, message: Message, tx: int = 0, *, id: int = 0) -> Pending: ...

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending: ...

    def send(self, message: Message, queues: Sequence[str], tx: int = 0, *, id: int = 0) -> Pending: ...

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending: ...

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0) -> Pending: ...

    def take(self, queue: str, holder: str) -> Delivery | None: ...

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending: ...

    def release_holder(self, name: str) -> Pending: ...

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
    ) -> Pending:
        """The pending's id is the copy's."""

    def expire(self, message_id: int, queue: str, *, id: int = 0, tx: int = 0) -> Pending:
        """The pending's id is the copy's at the expiry address, 0 if there is none."""

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending: ...

    def begin(self, tx: int = 0) -> int: ...

    def prepare(self, tx: int, data: bytes = b"") -> Pending: ...

    def commit(self, tx: int) -> Pending: ...

    def rollback(self, tx: int) -> Pending: ...

    def message(self, message_id: int) -> Message: ...

    def browse(self, queue: str) -> Iterator[ReferenceInfo]: ...

    def explain(self, record_id: int) -> Sequence[ReferenceInfo]: ...

    def close(self) -> None: ...
