"""A chain of fake stores that write down what they are asked."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from journal.append.completion import Completion, completed
from journal.append.operations import PlainOperation
from journal.errors import (
    JournalError,
)
from journal.store.bodies.chunks import BodyStream
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.lockstep import chained_id
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.operations.look import QueueInfo
from journal.store.operations.transactions import Prepared
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.transactions import NotDurable, TransactionInfo

MESSAGE = Message("orders", b"one")

_Answer = TypeVar("_Answer")


class StoreFake:
    """A store that writes down what it is asked, issues ids when it is given none, and commits when it is told to."""

    def __init__(self, first_id: int = 1024) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refusals: list[JournalError] = []
        self.deliveries_to_come: list[Delivery] = []
        self.before_call: Callable[[], object] = lambda: None
        self.closed = False
        self.not_durable = NotDurable()
        self.room_now = False
        self._next_id = first_id
        self._group = Completion()

    def commit_group(self, error: JournalError | None = None) -> None:
        group, self._group = self._group, Completion()
        group.resolve(error)

    def _do(self, *call: Any, id: int = 0) -> Pending:
        self.before_call()
        if self.refusals:
            raise self.refusals.pop(0)
        self.calls.append(call)
        return Pending(id, self._group)

    def _make(self, *call: Any, id: int) -> Pending:
        if not id:
            self._next_id += 1024
            id = self._next_id
        return self._do(*call, id, id=id)

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending:
        return self._do("create_address", name, duplicate_window, tx)

    def destroy_address(self, name: str, tx: int = 0) -> Pending:
        return self._do("destroy_address", name, tx)

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending:
        return self._do("create_queue", config, tx)

    def destroy_queue(self, name: str, tx: int = 0) -> Pending:
        return self._do("destroy_queue", name, tx)

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0, *, id: int = 0) -> Pending:
        return self._make("bind", queue, key, filter, tx, id=id)

    def unbind(self, binding_id: int, tx: int = 0) -> Pending:
        return self._do("unbind", binding_id, tx)

    def store(self, message: Message, tx: int = 0, *, id: int = 0, checked: bool = False) -> Pending:
        return self._make("store", message, tx, checked, id=id)

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        return self._do("route", message_id, queue, due, tx)

    def send(
        self, message: Message, queues: Sequence[str], tx: int = 0, *, id: int = 0, checked: bool = False
    ) -> Pending:
        return self._make("send", message, tuple(queues), tx, checked, id=id)

    def send_all(
        self,
        messages: Sequence[Message],
        queues: Sequence[str],
        tx: int = 0,
        *,
        ids: Sequence[int] = (),
        checked: bool = False,
    ) -> PendingAll:
        made = list(ids)
        while len(made) < len(messages):
            self._next_id += 1024
            made.append(self._next_id)
        pending = self._do("send_all", tuple(messages), tuple(queues), tx, checked, *made)
        return PendingAll(made, pending.completion)

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        return self._do("acknowledge", message_id, queue, holder, tx)

    def acknowledge_all(self, message_ids: Sequence[int], queue: str, holder: str = "", tx: int = 0) -> PendingAll:
        pending = self._do("acknowledge_all", queue, holder, tx, *message_ids)
        return PendingAll(message_ids, pending.completion)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0, *, checked: bool = False) -> Pending:
        return self._do("acquire", message_id, queue, holder, tx, checked)

    def take(self, queue: str, holder: str) -> Delivery | None:
        self._do("take", queue, holder)
        return self.deliveries_to_come.pop(0) if self.deliveries_to_come else None

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0, *, counts: bool = True) -> Pending:
        return self._do("release", message_id, queue, holder, tx, counts)

    def delete(self, message_id: int) -> Pending:
        return self._do("delete", message_id)

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        return self._do("release_holder", name, counts)

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        self._do("reattach", holder)
        return [(5 << 10, "q")]

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending:
        return self._do("deliveries", message_id, queue, count, tx)

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
    ) -> Moved:
        moved = self._make("move", message_id, queue, address, tuple(queues), reason, tx, id=id)
        return Moved(moved.id, moved.completion, queues)

    def expire(self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0) -> Moved:
        return self._dispose("expire", message_id, queue, tx, queues, id=id)

    def dead_letter(
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0
    ) -> Moved:
        return self._dispose("dead_letter", message_id, queue, tx, queues, id=id)

    def _dispose(self, name: str, message_id: int, queue: str, tx: int, queues: Sequence[str], id: int) -> Moved:
        chosen = tuple(queues) or (f"its-choice-{self._next_id}",)
        moved = self._make(name, message_id, queue, tx, chosen, id=id)
        return Moved(moved.id, moved.completion, chosen)

    def store_stream(
        self,
        message: Message,
        body: Iterable[bytes],
        queues: Sequence[str] = (),
        tx: int = 0,
        *,
        id: int = 0,
        checked: bool = False,
    ) -> Pending:
        return self._make("store_stream", message, b"".join(body), tuple(queues), tx, checked, id=id)

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0
    ) -> Pending:
        pieces = [piece async for piece in body]
        return self._make("store_stream", message, b"".join(pieces), tuple(queues), tx, False, id=0)

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending:
        return self._do("schedule", message_id, queue, due, tx)

    def begin(self, tx: int = 0) -> int:
        return self._make("begin", id=tx).id

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        return Prepared(tx, self._do("prepare", tx, data).completion, self.not_durable)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending:
        return self._do("commit", tx, *([tuple(then)] if then else []))

    def rollback(self, tx: int) -> Pending:
        return self._do("rollback", tx)

    def transactions(self) -> list[TransactionInfo]:
        return self._read("transactions")

    def transaction(self, tx: int) -> TransactionInfo:
        return self._read("transaction", tx)

    def in_doubt(self) -> list[TransactionInfo]:
        return self._read("in_doubt")

    def message(self, message_id: int, *, body: bool = True) -> Message:
        return self._read("message", message_id, body)

    def body_stream(self, message_id: int) -> BodyStream:
        return self._read("body_stream", message_id)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        return self._read("explain", record_id)

    def describe(self, message_id: int) -> MessageEntry:
        return self._read("describe", message_id)

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        return self._read("browse", queue, limit)

    def queues(self) -> list[QueueInfo]:
        return self._read("queues")

    def queue(self, name: str) -> QueueInfo:
        return self._read("queue", name)

    def addresses(self) -> list[AddressEntry]:
        return self._read("addresses")

    def bindings(self, queue: str) -> list[BindingEntry]:
        return self._read("bindings", queue)

    def holders(self) -> list[str]:
        return self._read("holders")

    def next_due(self) -> int:
        return self._read("next_due")

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        return self._read("expired", limit, agreed)

    def _read(self, *call: Any) -> _Answer:  # type: ignore[type-var]
        """What it was asked, as its answer."""
        self.calls.append(call)
        return call  # type: ignore[return-value]

    def tick(self) -> int:
        self._do("tick")
        return 3

    def room(self) -> Completion:
        self.calls.append(("room",))
        return completed() if self.room_now else self._group

    def flush(self) -> Completion:
        return self._do("flush").completion

    def close(self) -> None:
        self.closed = True
        if self.refusals:
            raise self.refusals.pop(0)


def chain_of(count: int = 2, **more: Any) -> tuple[MessageStoreChain, list[StoreFake]]:
    """Stores that would issue different ids."""
    stores = [StoreFake(first_id=(1 + 100 * place) << 10) for place in range(count)]
    return MessageStoreChain(stores, **more), stores


def commit_all(stores: Sequence[StoreFake]) -> None:
    for store in stores:
        store.commit_group()


def as_chained(calls: Sequence[tuple[Any, ...]], ids: Sequence[int]) -> list[tuple[Any, ...]]:
    """The calls as they reach the stores behind the first, which has checked what is checked once."""
    return [tuple(chained_id(one) if one in ids else one is False or one for one in call) for call in calls]
