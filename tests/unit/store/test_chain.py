"""Several stores as one: the same operations in the same order, complete when all are, and an error that says whose."""

from __future__ import annotations

import asyncio
import errno
import io
import tempfile
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import pytest

from journal.append.completion import Completion, completed
from journal.append.operations import PlainOperation
from journal.errors import (
    ChainError,
    ConfigError,
    DeadlineError,
    FencedError,
    FullError,
    JournalError,
    LocalStorageError,
    MessageHeldError,
    OutcomeUnknownError,
    QueueMissingError,
    RolledBackError,
)
from journal.store.bodies.chunks import BodyStream
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.kept_body import MEMORY_BYTES_MAX
from journal.store.chain.lockstep import chained_id
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.operations.look import QueueInfo
from journal.store.operations.transactions import Prepared
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.store import MessageStore
from journal.store.transactions import NotDurable, TransactionInfo
from journal.v1.journal_pb2 import ADD

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


# ---- order, ids, completion --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_every_store_is_asked_the_same_in_the_same_order_by_the_ids_that_the_first_one_issued(transacted: bool) -> None:
    chain, (first, *others) = chain_of(3)
    tx = chain.begin() if transacted else 0
    config = QueueConfig("q", "orders")
    chain.create_address("orders", 10, tx)
    chain.create_queue(config, tx)
    binding = chain.bind("q", "key", "filter", tx).id
    stored, sent = chain.store(MESSAGE, tx).id, chain.send(MESSAGE, ["q"], tx).id
    several = chain.send_all([MESSAGE, MESSAGE], ["q"], tx).ids
    chain.route(stored, "q", 7, tx)
    commit_all([first, *others])
    chain.acquire(stored, "q", "h", tx)
    chain.deliveries(stored, "q", 3, tx)
    chain.release(stored, "q", "h", tx)
    chain.schedule(stored, "q", 9, tx)
    copy = chain.move(stored, "q", "other", ["o"], "why", tx).id
    expiry, dead_letter = chain.expire(sent, "q", tx), chain.dead_letter(sent, "q", tx, queues=["d"])
    expired, dead = expiry.id, dead_letter.id
    commit_all([first, *others])
    chain.acknowledge(copy, "o", "h", tx)
    assert chain.acknowledge_all(several, "q", "h", tx).ids == several
    chain.reattach("h")
    chain.release_holder("h")
    chain.delete(stored)
    chain.unbind(binding, tx)
    chain.destroy_queue("q", tx)
    chain.destroy_address("orders", tx)
    expected = [
        *([("begin", tx)] if tx else []),
        ("create_address", "orders", 10, tx),
        ("create_queue", config, tx),
        ("bind", "q", "key", "filter", tx, binding),
        ("store", MESSAGE, tx, False, stored),
        ("send", MESSAGE, ("q",), tx, False, sent),
        ("send_all", (MESSAGE, MESSAGE), ("q",), tx, False, *several),
        ("route", stored, "q", 7, tx),
        ("acquire", stored, "q", "h", tx, False),
        ("deliveries", stored, "q", 3, tx),
        ("release", stored, "q", "h", tx, True),
        ("schedule", stored, "q", 9, tx),
        ("move", stored, "q", "other", ("o",), "why", tx, copy),
        ("expire", sent, "q", tx, expiry.queues, expired),
        ("dead_letter", sent, "q", tx, ("d",), dead),
        ("acknowledge", copy, "o", "h", tx),
        ("acknowledge_all", "q", "h", tx, *several),
        ("reattach", "h"),
        ("release_holder", "h", True),
        ("delete", stored),
        ("unbind", binding, tx),
        ("destroy_queue", "q", tx),
        ("destroy_address", "orders", tx),
    ]
    issued = [binding, stored, sent, *several, copy, expired, dead, *([tx] if tx else [])]
    assert len(set(issued)) == len(issued)
    assert first.calls == expected
    for other in others:
        assert other.calls == as_chained(expected, issued)


def as_chained(calls: Sequence[tuple[Any, ...]], ids: Sequence[int]) -> list[tuple[Any, ...]]:
    """The calls as they reach the stores behind the first, which has checked what is checked once."""
    return [tuple(chained_id(one) if one in ids else one is False or one for one in call) for call in calls]


def test_an_id_of_the_chain_keeps_its_virtual_shard_and_is_none_that_a_journal_issues() -> None:
    for issued in (1 << 10 | 7, (2**52 - 1) << 10 | 1023):
        assert chained_id(issued) % 1024 == issued % 1024
        assert issued < chained_id(issued) < 2**63
        assert chained_id(chained_id(issued)) == chained_id(issued)
    assert chained_id(0) == 0


def test_threads_that_share_a_chain_leave_the_same_order_in_every_store() -> None:
    chain, (first, second) = chain_of()

    def send_many(name: str) -> None:
        for number in range(200):
            chain.send(Message(f"{name}-{number}"), ["q"])

    threads = [threading.Thread(target=send_many, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first.calls) == 600
    assert [call[1] for call in first.calls] == [call[1] for call in second.calls]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_an_operation_is_complete_when_the_last_store_has_completed_it(last: int) -> None:
    chain, stores = chain_of(3)
    pending, same_group = chain.store(MESSAGE), chain.store(MESSAGE)
    told: list[object] = []
    pending.add_callback(told.append)
    for place, store in enumerate(stores):
        if place != last:
            store.commit_group()
    assert not pending.done
    with pytest.raises(DeadlineError):
        pending.wait(0)
    stores[last].commit_group()
    assert told == [None]
    assert pending.wait(0) == pending.id
    assert same_group.wait(0) == same_group.id

    async def awaited() -> int:
        return await pending

    assert asyncio.run(awaited()) == pending.id


def _note(told: list[int], number: int, _: JournalError | None) -> None:
    told.append(number)


def test_completions_come_in_order_however_far_one_store_is_ahead() -> None:
    chain, (first, second) = chain_of()
    told: list[int] = []
    for number in range(5):
        chain.store(MESSAGE).add_callback(partial(_note, told, number))
        first.commit_group()
        if number == 1:
            second.commit_group()
    assert told == [0, 1]
    second.commit_group()
    assert told == [0, 1, 2, 3, 4]


# ---- transactions ------------------------------------------------------------------------------------------------


def test_a_transaction_has_one_number_in_the_chain_and_a_derived_one_in_the_other_stores() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    message = chain.send(MESSAGE, ["q"], tx).id
    chain.prepare(tx, b"xid")
    committed = chain.commit(tx)
    commit_all([first, second])
    assert committed.wait(0) == tx
    expected = [("begin", tx), ("send", MESSAGE, ("q",), tx, False, message), ("prepare", tx, b"xid"), ("commit", tx)]
    assert first.calls == expected
    assert second.calls == as_chained(expected, [tx, message])


def test_a_commit_puts_records_of_the_first_stores_journal_there_alone() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    then: list[PlainOperation] = [(ADD, 7 << 10, 6, b"outcome", False, 0)]
    chain.commit(tx, then=then)
    assert first.calls[-1] == ("commit", tx, tuple(then))
    assert second.calls[-1] == ("commit", chained_id(tx))


def test_a_prepare_says_what_of_the_transaction_would_not_survive() -> None:
    chain, (first, second) = chain_of()
    first.not_durable = NotDurable(messages=(5 << 10,))
    second.not_durable = NotDurable(messages=(chained_id(5 << 10),))
    assert chain.prepare(chain.begin()).not_durable == first.not_durable


def test_a_body_comes_once_and_every_store_gets_it_in_a_transaction_of_the_chains_own() -> None:
    chain, (first, second) = chain_of()
    pieces = iter([b"one ", b"two"])
    pending = chain.store_stream(MESSAGE, pieces, ["q"])
    tx = first.calls[0][1]
    expected = [("begin", tx), ("store_stream", MESSAGE, b"one two", ("q",), tx, False, pending.id), ("commit", tx)]
    assert first.calls == expected
    assert second.calls == as_chained(expected, [tx, pending.id])
    commit_all([first, second])
    assert pending.wait(0) == pending.id


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def test_a_body_in_an_event_loop_comes_in_the_transaction_that_is_given() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    pending = asyncio.run(chain.store_stream_async(MESSAGE, _pieces(b"one ", b"two"), ["q"], tx))
    expected = [("begin", tx), ("store_stream", MESSAGE, b"one two", ("q",), tx, False, pending.id)]
    assert first.calls == expected
    assert second.calls == as_chained(expected, [tx, pending.id])
    first.commit_group()
    assert not pending.done
    second.commit_group()
    assert pending.wait(0) == pending.id


@pytest.mark.parametrize("at", ["begin", "store_stream", "commit", "rollback"])
def test_an_event_loop_goes_on_while_another_store_waits_for_room(at: str) -> None:
    chain, (_, second) = chain_of()
    waits, has_room = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def wait_for_room() -> None:
        if len(second.calls) == (2 if at == "rollback" else ["begin", "store_stream", "commit"].index(at)):
            waits.set()
            in_time.append(has_room.wait(10))

    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        if at == "rollback":
            second.calls.append(("nothing of the body",))
            raise KeyError("the producer is gone")

    async def store() -> None:
        second.before_call = wait_for_room
        storing = asyncio.create_task(chain.store_stream_async(MESSAGE, body(), ["q"]))
        while not waits.is_set() and not storing.done():
            await asyncio.sleep(0.001)
        has_room.set()
        if at == "rollback":
            with pytest.raises(KeyError):
                await storing
        else:
            await storing

    asyncio.run(store())
    assert in_time == [True]


@pytest.mark.parametrize("at", ["begin", "store_stream"])
def test_whoever_is_cancelled_while_another_store_waits_leaves_nothing_in_any(at: str) -> None:
    chain, (first, second) = chain_of()
    waits, has_room = threading.Event(), threading.Event()

    def wait_for_room() -> None:
        if len(second.calls) == ["begin", "store_stream"].index(at):
            waits.set()
            has_room.wait(10)

    async def store() -> None:
        second.before_call = wait_for_room
        storing = asyncio.create_task(chain.store_stream_async(MESSAGE, _pieces(b"one"), ["q"]))
        while not waits.is_set() and not storing.done():
            await asyncio.sleep(0.001)
        for _ in range(3):
            storing.cancel()
            await asyncio.sleep(0)
        assert not storing.done()
        has_room.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(store())
    done = ["begin", "rollback"] if at == "begin" else ["begin", "store_stream", "rollback"]
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == done
    chain.store(MESSAGE)


def test_a_body_whose_caller_was_cancelled_is_waited_for_once_its_transaction_is_committed() -> None:
    chain, (first, second) = chain_of(lag_timeout_s=0)
    tx = chain.begin()
    waits, has_room = threading.Event(), threading.Event()

    def wait_for_room() -> None:
        waits.set()
        has_room.wait(10)

    async def store() -> None:
        second.before_call = wait_for_room
        storing = asyncio.create_task(chain.store_stream_async(MESSAGE, _pieces(b"one"), ["q"], tx))
        while not waits.is_set():
            await asyncio.sleep(0.001)
        storing.cancel()
        await asyncio.sleep(0)
        has_room.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(store())
    chain.commit(tx)
    first.commit_group()
    *_, stored = next(call for call in first.calls if call[0] == "store_stream")
    with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
        chain.acquire(stored, "q", "h")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
def test_a_body_that_has_come_waits_for_room_for_its_commit(asynchronous: bool) -> None:
    chain, (first, second) = chain_of()

    def fill_up() -> None:
        if [call[0] for call in first.calls] == ["begin", "store_stream"]:
            first.before_call = lambda: None
            first.refusals.append(FullError("no room"))

    first.before_call = fill_up
    first.room_now = True
    if asynchronous:
        asyncio.run(chain.store_stream_async(MESSAGE, _pieces(b"one"), ["q"]))
    else:
        chain.store_stream(MESSAGE, [b"one"], ["q"])
    assert [call[0] for call in first.calls] == ["begin", "store_stream", "room", "commit"]
    assert [call[0] for call in second.calls] == ["begin", "store_stream", "commit"]


def test_a_body_that_is_cut_off_is_rolled_back_and_the_chain_goes_on() -> None:
    chain, (first, second) = chain_of()

    def cut_off() -> Iterator[bytes]:
        yield b"one"
        raise KeyError("the producer is gone")

    with pytest.raises(KeyError):
        chain.store_stream(MESSAGE, cut_off(), ["q"])
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback"]
    chain.store(MESSAGE)


def test_a_rollback_of_the_chains_own_that_meets_a_full_journal_is_tried_again() -> None:
    chain, (first, second) = chain_of()

    def cut_off() -> Iterator[bytes]:
        yield b"one"
        first.refusals.append(FullError("no room"))
        raise KeyError("the producer is gone")

    with pytest.raises(KeyError):
        chain.store_stream(MESSAGE, cut_off(), ["q"])
    assert [call[0] for call in second.calls] == ["begin"]
    chain.begin()
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback", "begin"]


def test_a_body_that_only_another_store_refuses_ends_the_chain() -> None:
    chain, (_, second) = chain_of()
    tx = chain.begin()
    second.refusals.append(FullError("the disk is full"))
    with pytest.raises(ChainError, match=r"^store 2 of 2: FullError"):
        chain.store_stream(MESSAGE, [b"one"], ["q"], tx)


class FullDisk(io.RawIOBase):
    """A file on a disk that has room for so many bytes."""

    def __init__(self, room_bytes: int) -> None:
        self._content = io.BytesIO()
        self._room_bytes = room_bytes

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()

    def readinto(self, buffer: Any) -> int:
        return self._content.readinto(buffer)

    def write(self, data: Any) -> int:
        room_bytes = self._room_bytes - self._content.tell()
        if not room_bytes:
            raise OSError(errno.ENOSPC, "no space left on device")
        return self._content.write(data[:room_bytes])


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
@pytest.mark.parametrize("last", [b"buffered", bytes(MEMORY_BYTES_MAX)], ids=["behind-the-last-piece", "in-a-piece"])
def test_a_body_that_cannot_be_kept_is_refused_and_the_chain_goes_on(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool, last: bytes
) -> None:
    room_bytes = MEMORY_BYTES_MAX + 1
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.BufferedRandom(FullDisk(room_bytes)))
    chain, (first, second) = chain_of()
    pieces = [bytes(room_bytes), b"buffered", last]

    def store() -> None:
        if asynchronous:
            asyncio.run(chain.store_stream_async(MESSAGE, _pieces(*pieces), ["q"]))
        else:
            chain.store_stream(MESSAGE, pieces, ["q"])

    with pytest.raises(LocalStorageError, match=r"cannot keep a body in .*: .* no space left"):
        store()
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback"]
    chain.store(MESSAGE)


def test_a_rollback_is_no_stores_fault() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    stored = chain.store(MESSAGE, tx)
    chain.rollback(tx)
    error = RolledBackError("rolled back")
    first.commit_group(error)
    second.commit_group(error)
    with pytest.raises(RolledBackError):
        stored.wait(0)
    assert chain.error is None
    chain.store(MESSAGE)


@pytest.mark.parametrize("settle", [MessageStoreChain.commit, MessageStoreChain.rollback], ids=["commit", "rollback"])
def test_what_a_transaction_had_locked_is_waited_for_until_all_stores_have_settled_it(
    settle: Callable[[MessageStoreChain, int], Pending],
) -> None:
    operations: list[Callable[[MessageStoreChain, int], Pending]] = [
        lambda chain, tx: chain.acknowledge(5 << 10, "q", "", tx),
        lambda chain, tx: chain.release(5 << 10, "q", "", tx),
        lambda chain, tx: chain.move(5 << 10, "q", "other", ["o"], "why", tx),
        lambda chain, tx: chain.destroy_queue("q", tx),
    ]
    for operate in operations:
        chain, (first, _) = chain_of(lag_timeout_s=0)
        tx = chain.begin()
        operate(chain, tx)
        settle(chain, tx)
        first.commit_group()
        with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
            chain.acquire(5 << 10, "q", "h")


# ---- refusals and failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal", [QueueMissingError("no queue q"), FullError("full"), DeadlineError("no body in the local copy")]
)
def test_what_the_first_store_refuses_no_store_is_asked_and_the_chain_goes_on(refusal: JournalError) -> None:
    chain, (first, second) = chain_of()
    first.refusals.append(refusal)
    with pytest.raises(type(refusal)):
        chain.send(MESSAGE, ["q"])
    assert second.calls == []
    chain.send(MESSAGE, ["q"])
    assert len(second.calls) == 1


def test_what_only_another_store_refuses_names_it_and_ends_the_chain() -> None:
    chain, (first, second) = chain_of(names=["kafka", "local"])
    refusal = QueueMissingError("no queue q")
    second.refusals.append(refusal)
    with pytest.raises(ChainError, match=r"^local: QueueMissingError: no queue q") as raised:
        chain.send(MESSAGE, ["q"])
    assert raised.value.store == "local"
    assert raised.value.__cause__ is refusal
    before = len(first.calls)
    with pytest.raises(ChainError, match=r"^local: "):
        chain.store(MESSAGE)
    assert len(first.calls) == before
    chain.message(5 << 10)


@pytest.mark.parametrize(("failing", "name"), [(0, "store 1 of 2"), (1, "store 2 of 2")])
def test_a_store_that_fails_is_named_to_everyone_who_waits_and_ends_the_chain(failing: int, name: str) -> None:
    chain, stores = chain_of()
    before = chain.store(MESSAGE)
    commit_all(stores)
    pending = chain.store(MESSAGE)
    stores[failing].commit_group(FencedError("another node"))
    stores[1 - failing].commit_group()
    before.wait(0)
    with pytest.raises(ChainError, match=rf"^{name}: FencedError") as raised:
        pending.wait(0)
    assert isinstance(raised.value, OutcomeUnknownError)
    assert isinstance(raised.value.__cause__, FencedError)
    assert chain.error is raised.value
    with pytest.raises(ChainError):
        chain.begin()


def test_a_first_store_that_is_fenced_when_it_is_called_is_named_too() -> None:
    chain, (first, second) = chain_of()
    first.refusals.append(FencedError("another node"))
    with pytest.raises(ChainError, match=r"^store 1 of 2: FencedError"):
        chain.store(MESSAGE)
    assert second.calls == []


def stream(chain: MessageStoreChain, body: Iterable[bytes], asynchronous: bool) -> Pending:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in body:
            yield piece

    if asynchronous:
        return asyncio.run(chain.store_stream_async(MESSAGE, pieces(), ["q"]))
    return chain.store_stream(MESSAGE, body, ["q"])


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
def test_a_first_store_that_is_fenced_while_a_body_comes_is_named_too(asynchronous: bool) -> None:
    chain, (first, _) = chain_of(names=["kafka", "local"])

    def fence() -> None:
        first.refusals += [FencedError("another node")] * len(first.calls)

    first.before_call = fence
    with pytest.raises(ChainError, match=r"^kafka: FencedError"):
        stream(chain, [b"one"], asynchronous)
    assert chain.error is not None


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
def test_a_body_whose_own_store_is_fenced_is_no_fault_of_the_chain(asynchronous: bool) -> None:
    chain, (first, second) = chain_of()

    def body() -> Iterator[bytes]:
        yield b"one"
        raise FencedError("another node has the journal that the body is read from")

    with pytest.raises(FencedError):
        stream(chain, body(), asynchronous)
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback"]
    chain.store(MESSAGE)


# ---- stores that lag ---------------------------------------------------------------------------------------------


def test_what_the_first_store_delivers_is_acquired_in_the_others_once_they_have_it() -> None:
    chain, (first, second) = chain_of()
    pending = chain.send(MESSAGE, ["q"])
    message = pending.id
    first.commit_group()
    first.deliveries_to_come.append(Delivery(message, 0))
    arrived: list[bool] = []
    second.before_call = lambda: arrived.append(pending.done)
    taken: list[Delivery | None] = []
    taking = threading.Thread(target=lambda: taken.append(chain.take("q", "h")))
    taking.start()
    second.commit_group()
    taking.join()
    assert arrived == [True]
    assert taken == [Delivery(message, 0)]
    assert second.calls[1:] == [("acquire", chained_id(message), "q", "h", 0, True)]
    assert chain.take("q", "h") is None
    assert second.calls[2:] == []


@pytest.mark.parametrize("known", [True, False])
def test_what_a_commit_makes_visible_is_waited_for_too(known: bool) -> None:
    chain, (first, second) = chain_of(lag_timeout_s=0)
    if known:
        tx = chain.begin()
        message = chain.send(MESSAGE, ["q"], tx).id
    else:
        tx, message = 9 << 10, 8 << 10  # prepared in an earlier life
    chain.commit(tx)
    first.commit_group()
    with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
        chain.acknowledge(message, "q")
    assert second.calls[-1] == ("commit", chained_id(tx))


def test_a_holder_that_only_another_store_still_knows_lets_go() -> None:
    chain, (_, second) = chain_of()
    theirs = chained_id(5 << 10)
    second.refusals.append(MessageHeldError("held by someone", theirs))
    chain.acquire(5 << 10, "q", "h")
    assert second.calls == [("release", theirs, "q", "", 0, False), ("acquire", theirs, "q", "h", 0, True)]
    assert chain.error is None


def test_holders_that_only_another_store_still_knows_let_go_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, (_, second) = chain_of()
    ids = [5 << 10, 6 << 10]
    theirs = [chained_id(each) for each in ids]
    second.refusals += [MessageHeldError("held by someone", each) for each in reversed(theirs)]
    released: list[int] = []

    def release(message_id: int, queue: str, *, counts: bool) -> Pending:
        released.append(message_id)
        return Pending(message_id)

    monkeypatch.setattr(second, "release", release)
    chain.acknowledge_all(ids, "q", "h")
    assert released == theirs[::-1]
    assert second.calls == [("acknowledge_all", "q", "h", 0, *theirs)]
    assert chain.error is None


def test_many_that_were_sent_together_are_waited_for_before_any_is_used() -> None:
    chain, (first, second) = chain_of(lag_timeout_s=0)
    arrived = chain.send(MESSAGE, ["q"]).id
    commit_all([first, second])
    ids = chain.send_all([MESSAGE, MESSAGE], ["q"]).ids
    first.commit_group()
    with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
        chain.acknowledge_all([arrived, ids[1]], "q")
    assert [call[0] for call in second.calls] == ["send", "send_all"]


# ---- the rest ----------------------------------------------------------------------------------------------------


OF_ONE_STORE = {
    "start",
    "take_in",
    "incoming",
    "ways_in",
    "cached_bytes",
    "volatile_bytes",
    "inline_bytes_max",
}
"""What a chain has not: its stores are started already, taking in is of one journal, gauges are each store's."""


def public(of: type) -> dict[str, Any]:
    return {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}


def test_a_chain_has_every_operation_of_a_store_and_asks_for_no_more() -> None:
    operations, own = public(MessageStore), public(MessageStoreChain)
    assert operations.keys() - own.keys() == OF_ONE_STORE
    for name in operations.keys() - OF_ONE_STORE:
        takes, given = (signature(found[name]).parameters for found in (own, operations))
        # ids are given and checked by a chain, not for it; and nobody begins a transaction of a number of its own in it
        left_out = {"id", "ids", "checked"} | ({"tx"} if name == "begin" else set())
        assert takes.keys() == given.keys() - left_out, name
        assert all(takes[each].default == given[each].default for each in takes), name


def test_reads_come_from_the_first_store_alone() -> None:
    chain, (first, second) = chain_of()
    reads: list[Callable[[], Any]] = [
        lambda: chain.message(5 << 10, body=False),
        lambda: chain.body_stream(5 << 10),
        lambda: chain.explain(5 << 10),
        lambda: chain.describe(5 << 10),
        lambda: chain.browse("q", 2),
        chain.queues,
        lambda: chain.queue("q"),
        chain.addresses,
        lambda: chain.bindings("q"),
        chain.holders,
        chain.transactions,
        lambda: chain.transaction(7),
        chain.in_doubt,
        chain.next_due,
        lambda: chain.expired(9, agreed=False),
    ]
    answers = [read() for read in reads]
    assert answers == first.calls
    assert [call[1:] for call in first.calls if len(call) > 1] == [
        (5 << 10, False),
        (5 << 10,),
        (5 << 10,),
        (5 << 10,),
        ("q", 2),
        ("q",),
        ("q",),
        (7,),
        (9, False),
    ]
    assert second.calls == []


def test_time_goes_on_in_the_first_store_alone() -> None:
    chain, (first, second) = chain_of()
    assert chain.tick() == 3
    assert first.calls == [("tick",)]
    assert second.calls == []


@pytest.mark.parametrize("wait_for", [MessageStoreChain.flush, MessageStoreChain.room], ids=["flush", "room"])
def test_what_is_waited_for_is_waited_for_in_all_stores(wait_for: Callable[[MessageStoreChain], Completion]) -> None:
    chain, (first, second) = chain_of()
    done = wait_for(chain)
    first.commit_group()
    assert not done.done
    second.commit_group()
    done.wait(0)


def test_close_closes_every_store_also_behind_one_that_raises() -> None:
    chain, stores = chain_of(3)
    stores[0].refusals.append(DeadlineError("slow"))
    with pytest.raises(DeadlineError):
        chain.close()
    assert [store.closed for store in stores] == [True, True, True]


def test_a_chain_needs_a_store_and_a_name_for_each() -> None:
    with pytest.raises(ConfigError):
        MessageStoreChain([])
    with pytest.raises(ConfigError):
        chain_of(names=["one"])
