"""A large message belongs to the transaction that it was begun in, not to the next one that gets the same number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from journal.append.completion import Completion
from journal.errors import StateError, TransactionPreparedError, TransactionUnknownError
from journal.limits import Limits
from journal.store.model import Message
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, send


@pytest.fixture
def node(small_node: StoreNode) -> StoreNode:
    return small_node


def begin_again(store: MessageStore, tx: int) -> None:
    store.rollback(tx).wait()
    assert store.begin(tx) == tx


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("sizes", [(350, 250), (350, 0), (50, 20), (50, 500)])
@pytest.mark.parametrize("again", [True, False])
def test_a_stream_ends_with_its_transaction_and_leaves_nothing_in_one_of_the_same_number(
    node: StoreNode, store: MessageStore, sizes: tuple[int, int], durable: bool, again: bool
) -> None:
    tx = store.begin()

    def body() -> Iterator[bytes]:
        yield b"x" * sizes[0]
        store.rollback(tx).wait()
        if again:
            store.begin(tx)
        yield b"x" * sizes[1]

    with pytest.raises(TransactionUnknownError):
        store.store_stream(Message("orders", durable=durable), body(), ["q"], tx)
    store.begin(tx)
    assert store.transaction(tx).empty
    send(store, b"of the next", tx=tx)
    store.commit(tx).wait()
    assert (bodies(store), kinds_in_journal(node)[CHUNK], store.volatile_bytes) == ([b"of the next"], 0, (0, 0))


def test_a_stream_in_an_event_loop_ends_with_its_transaction(node: StoreNode, store: MessageStore) -> None:
    tx = store.begin()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 350
        begin_again(store, tx)
        yield b"x" * 250

    with pytest.raises(TransactionUnknownError):
        asyncio.run(store.store_stream_async(Message("orders"), body(), ["q"], tx))
    store.commit(tx).wait()
    assert (infos(store), kinds_in_journal(node)[CHUNK]) == ([], 0)


def test_a_transaction_waits_for_its_own_streams_whatever_became_of_those_of_an_earlier_one(
    node: StoreNode, store: MessageStore
) -> None:
    tx = store.begin()

    async def work() -> None:
        renewed, begun, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def first() -> AsyncIterator[bytes]:
            yield b"x" * 350
            begin_again(store, tx)
            renewed.set()
            await begun.wait()
            yield b"x" * 250

        async def second() -> AsyncIterator[bytes]:
            await renewed.wait()
            yield b"y" * 350
            begun.set()
            await over.wait()
            with pytest.raises(StateError):
                store.commit(tx)
            yield b"y" * 50

        async def fail() -> None:
            with pytest.raises(TransactionUnknownError):
                await store.store_stream_async(Message("orders"), first(), ["q"], tx)
            over.set()

        async def succeed() -> None:
            await renewed.wait()
            await store.store_stream_async(Message("orders"), second(), ["q"], tx)

        await asyncio.gather(fail(), succeed())

    asyncio.run(work())
    store.commit(tx).wait()
    assert bodies(node.crash()) == [b"y" * 400]
    assert kinds_in_journal(node)[CHUNK] == 4


def test_a_stream_whose_own_transaction_was_rolled_back_leaves_one_of_the_same_number_alone(
    node: StoreNode, store: MessageStore
) -> None:
    numbers: list[int] = []

    def body() -> Iterator[bytes]:
        yield b"x" * 350
        numbers.extend(info.tx for info in store.transactions())
        begin_again(store, numbers[0])
        yield b"x" * 250

    with pytest.raises(TransactionUnknownError):
        store.store_stream(Message("orders"), body(), ["q"])
    (tx,) = numbers
    send(store, b"of the next", tx=tx)
    store.commit(tx).wait()
    assert (bodies(store), kinds_in_journal(node)[CHUNK]) == ([b"of the next"], 0)


def test_a_stream_goes_on_when_room_comes_just_before_it_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(queue_operations_max=20, transaction_buffer_operations_max=1)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    with StoreNode(tmp_path / "node", settings, limits=limits, room_timeout_ms=0) as node, ExitStack() as full:
        declare(node.store, "q", "r")
        store, room = node.store, node.journal.room

        def just_got() -> Completion:
            full.close()
            store.flush().wait()
            return room()

        full.enter_context(node.blocked_writer())
        for _ in range(10):
            store.send(Message("orders", b"fills"), ["r"])
        monkeypatch.setattr(node.journal, "room", just_got)
        store.store_stream(Message("orders"), [b"x" * 250], ["q"]).wait()
        assert bodies(store) == [b"x" * 250]


def test_a_stream_that_is_not_durable_ends_when_its_transaction_is_prepared(store: MessageStore) -> None:
    tx = store.begin()

    def body() -> Iterator[bytes]:
        yield b"x" * 350
        store.prepare(tx)
        yield b"x" * 100
        pytest.fail("the body was read on")

    with pytest.raises(TransactionPreparedError):
        store.store_stream(Message("orders", durable=False), body(), ["q"], tx)
    assert store.volatile_bytes == (0, 0)
    store.commit(tx).wait()
    assert infos(store) == []
