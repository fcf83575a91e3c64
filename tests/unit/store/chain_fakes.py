"""A chain of fake stores that write down what they are asked."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from journal.append.completion import Completion, completed
from journal.append.operations import PlainOperation
from journal.errors import (
    JournalError,
)
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.lockstep import chained_id
from journal.store.chain.ports import ChainedStore
from journal.store.model import Delivery, Held, Message
from journal.store.operations.transactions import Prepared
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.transactions import NotDurable

MESSAGE = Message("orders", b"one")

UNSAID = frozenset({"id", "discard"})

READING = frozenset(
    {
        "address_settings",
        "address",
        "addresses",
        "bindings",
        "bodies",
        "body_stream",
        "browse",
        "dead",
        "describe",
        "expired",
        "explain",
        "holders",
        "in_doubt",
    }
    | {"message", "next_due", "queue", "queues", "settings_of", "transaction", "transactions"}
)


class NothingHeld:
    """The release of a holder that holds nothing."""

    completion = completed()

    def step(self) -> None: ...


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

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Any other operation of a store: it is written down with all its arguments, the id that it is given last."""
        signature = inspect.signature(getattr(ChainedStore, name))

        def operation(*positional: Any, **named: Any) -> Any:
            bound = signature.bind(self, *positional, **named)
            bound.apply_defaults()
            _, *given = bound.arguments.items()
            call = [
                name,
                *(tuple(each) if isinstance(each, list) else each for key, each in given if key not in UNSAID),
            ]
            if name in READING:
                self.calls.append(tuple(call))
                return tuple(call)
            return self._make(*call, id=bound.arguments["id"]) if "id" in bound.arguments else self._do(*call)

        return operation

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

    def acknowledge_all(self, held: Sequence[Held], tx: int = 0) -> PendingAll:
        ids = [message_id for each in held for message_id in each.messages]
        told = [value for queue, messages, holder in held for value in (queue, holder, tx, *messages)]
        return PendingAll(ids, self._do("acknowledge_all", *told).completion)

    def take_all(self, queue: str, holder: str, count: int, *, bodies: bool = True) -> list[Delivery]:
        self._do("take_all", queue, holder, count, bodies)
        taken, self.deliveries_to_come = self.deliveries_to_come[:count], self.deliveries_to_come[count:]
        return taken

    def releasing(self, name: str, *, counts: bool = True) -> NothingHeld:
        self._do("releasing", name, counts)
        return NothingHeld()

    def reattaching(self, holder: str) -> Iterator[tuple[int, str]]:
        self._do("reattaching", holder)
        return iter([(5 << 10, "q")])

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
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), reason: str = "", id: int = 0, tx: int = 0
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

    def begin(self, tx: int = 0) -> int:
        return self._make("begin", id=tx).id

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        return Prepared(tx, self._do("prepare", tx, data).completion, self.not_durable)

    def discard_leaving(self) -> None: ...

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = (), discard: bool = True) -> Pending:
        return self._do("commit", tx, *([tuple(then)] if then else []))

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
    return MessageStoreChain(cast(list[ChainedStore], stores), **more), stores


def commit_all(stores: Sequence[StoreFake]) -> None:
    for store in stores:
        store.commit_group()


def as_chained(calls: Sequence[tuple[Any, ...]], ids: Sequence[int]) -> list[tuple[Any, ...]]:
    """The calls as they reach the stores behind the first, which has checked what is checked once."""
    return [tuple(chained_id(one) if one in ids else one is False or one for one in call) for call in calls]
