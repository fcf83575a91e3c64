"""Large messages: bodies in chunks of one transaction, streamed in and out; what is cut off leaves nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from journal.errors import (
    DuplicateMessageError,
    FullError,
    InvalidOperationError,
    MessageMissingError,
    MessageTooLargeError,
    StateError,
    StoreError,
    TransactionUnknownError,
)
from journal.limits import Limits
from journal.store.model import Message, Origin, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK, MESSAGE
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send

LIMIT = 2560
"""Bodies of `small_node`: whole chunks of 100 bytes, and a rest."""

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])


def body_of(size: int) -> bytes:
    return (hashlib.sha256(b"%d" % size).digest() * (size // 32 + 1))[:size]


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


@pytest.fixture
def node(small_node: StoreNode) -> StoreNode:
    return small_node


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("size", [0, 99, 100, 101, 200, 201, LIMIT - 1, LIMIT])
def test_a_body_of_any_size_comes_back(node: StoreNode, store: MessageStore, size: int, durable: bool) -> None:
    body = body_of(size)
    sent = send(store, body, durable=durable)
    streamed = store.store_stream(Message("orders", durable=durable), pieces(body, 37), ["q"]).wait()
    for message in (sent, streamed):
        assert store.message(message).body == body
        assert b"".join(store.body_stream(message)) == body
    expected = 2 * -(-size // 100) if size > 100 and durable else 0
    assert kinds_in_journal(node)[CHUNK] == expected
    assert size <= store.queue("q").bytes / 2 < size + 250
    for message in (sent, streamed):
        store.acknowledge(message, "q").wait()
    assert (kinds_in_journal(node)[CHUNK], kinds_in_journal(node)[MESSAGE]) == (0, 0)
    assert store.volatile_bytes == (0, 0)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT * 3])
def test_a_body_over_the_limit_is_refused_and_leaves_nothing(
    node: StoreNode, store: MessageStore, size: int, durable: bool
) -> None:
    before = kinds_in_journal(node), store.queues()
    with pytest.raises(MessageTooLargeError):
        store.send(Message("orders", body_of(size), durable=durable), ["q"])
    with pytest.raises(MessageTooLargeError):
        store.store_stream(Message("orders", durable=durable), pieces(body_of(size), 64), ["q"])
    assert (kinds_in_journal(node), store.queues()) == before
    assert (store.transactions(), store.volatile_bytes) == ([], (0, 0))


@BOTH
def test_a_large_message_is_there_after_an_activation(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    body = body_of(1234)
    message = Message("orders", body, properties={"n": 1}, priority=9, origin=Origin(1, "a", "q", "moved"))
    sent = store.send(message, ["q", "r"]).wait()
    store = reactivate(node)
    assert store.message(sent) == message
    assert store.message(sent, body=False).body == b""
    assert b"".join(store.body_stream(sent)) == body
    store.acknowledge(sent, "q")
    store.acknowledge(sent, "r").wait()
    assert (kinds_in_journal(node)[CHUNK], kinds_in_journal(node)[MESSAGE]) == (0, 0)


def test_a_large_message_takes_its_place_by_its_end(store: MessageStore) -> None:
    def body() -> Iterator[bytes]:
        yield b"a" * 300
        send(store, b"between")
        yield b"b" * 300

    store.store_stream(Message("orders"), body(), ["q"]).wait()
    assert bodies(store) == [b"between", b"a" * 300 + b"b" * 300]


@pytest.mark.parametrize("durable", [True, False])
def test_a_stream_that_breaks_off_leaves_nothing(node: StoreNode, store: MessageStore, durable: bool) -> None:
    def body() -> Iterator[bytes]:
        yield b"x" * 1000
        raise ConnectionResetError

    before = kinds_in_journal(node), store.queues()
    with pytest.raises(ConnectionResetError):
        store.store_stream(Message("orders", durable=durable), body(), ["q"])
    assert (kinds_in_journal(node), store.queues()) == before
    assert (store.transactions(), store.volatile_bytes) == ([], (0, 0))


def test_a_node_that_dies_in_a_stream_leaves_nothing(node: StoreNode, store: MessageStore) -> None:
    before = kinds_in_journal(node)

    def body() -> Iterator[bytes]:
        yield b"x" * 1000
        store.flush().wait()
        node.crash()
        yield b"x"

    store.store_stream(Message("orders"), body(), ["q"]).wait()
    assert kinds_in_journal(node) == before
    assert infos(node.store) == []


def test_what_a_stream_may_not_is_refused_before_its_body_is_read(store: MessageStore) -> None:
    def body() -> Iterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    for message, queues, tx, error in [
        (Message("orders", b"own"), ["q"], 0, InvalidOperationError),
        (Message("nowhere"), ["q"], 0, StoreError),
        (Message("orders"), ["missing"], 0, StoreError),
        (Message("orders"), ["q"], 99, TransactionUnknownError),
        (Message("orders", priority=10), ["q"], 0, InvalidOperationError),
    ]:
        with pytest.raises(error):
            store.store_stream(message, body(), queues, tx)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_a_large_message_in_a_transaction_happens_with_it(
    node: StoreNode, store: MessageStore, commits: bool, durable: bool
) -> None:
    body = body_of(700)
    tx = store.begin()
    send(store, body, tx=tx, durable=durable)
    store.store_stream(Message("orders", durable=durable), pieces(body, 300), ["q"], tx)
    assert infos(store) == []
    (store.commit if commits else store.rollback)(tx).wait()
    assert bodies(store) == ([body, body] if commits else [])
    assert kinds_in_journal(node)[CHUNK] == (14 if commits and durable else 0)
    assert (store.volatile_bytes == (0, 0)) is (durable or not commits)


def test_a_cut_off_stream_refuses_the_rest_of_its_transaction(store: MessageStore) -> None:
    tx = store.begin()
    send(store, b"before", tx=tx)
    with pytest.raises(MessageTooLargeError):
        store.store_stream(Message("orders"), pieces(body_of(LIMIT + 1), 500), ["q"], tx)
    refuse(StoreError, lambda: store.commit(tx), lambda: store.prepare(tx), lambda: send(store, b"after", tx=tx))
    store.rollback(tx).wait()
    assert infos(store) == []


@pytest.mark.parametrize("settles", ["commit", "prepare"])
def test_a_transaction_that_has_a_part_of_a_message_is_not_settled(
    node: StoreNode, store: MessageStore, settles: str
) -> None:
    tx, body = store.begin(), body_of(500)

    def settling() -> Iterator[bytes]:
        yield body[:250]
        with pytest.raises(StateError):
            (store.commit if settles == "commit" else store.prepare)(tx)
        yield body[250:]

    store.store_stream(Message("orders"), settling(), ["q"], tx)
    store.send(Message("orders", body), ["q"], tx)
    store.prepare(tx)
    store.commit(tx).wait()
    assert bodies(store) == [body, body]
    assert kinds_in_journal(node)[CHUNK] == 10


@BOTH
def test_a_large_message_in_doubt_is_whole_once_committed(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    body = body_of(700)
    tx = store.begin()
    sent = send(store, body, tx=tx)
    store.prepare(tx, b"xid").wait()
    store = reactivate(node)
    with pytest.raises(MessageMissingError):
        store.acknowledge(sent, "q")
    store.commit(tx).wait()
    assert store.message(sent).body == body


def test_a_large_duplicate_leaves_nothing(node: StoreNode, store: MessageStore) -> None:
    declare(store, "window", address="window", window=3)
    message = Message("window", body_of(500), duplicate_id=b"dup")
    store.send(message, ["window"]).wait()
    before = kinds_in_journal(node)
    with pytest.raises(DuplicateMessageError):
        store.send(message, ["window"])
    assert kinds_in_journal(node) == before
    assert store.transactions() == []


def test_a_message_that_goes_while_it_is_read_says_so(store: MessageStore) -> None:
    sent = send(store, body_of(500))
    stream = iter(store.body_stream(sent))
    assert next(stream) == body_of(500)[:100]
    store.acknowledge(sent, "q").wait()
    store.flush().wait()
    with pytest.raises(MessageMissingError):
        next(stream)


def test_streams_do_not_block_an_event_loop(store: MessageStore) -> None:
    body = body_of(2000)

    async def source() -> AsyncIterator[bytes]:
        for piece in pieces(body, 300):
            await asyncio.sleep(0)
            yield piece

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 1000
        raise ConnectionResetError

    async def work() -> None:
        with pytest.raises(ConnectionResetError):
            await store.store_stream_async(Message("orders"), broken(), ["q"])
        sent = await (await store.store_stream_async(Message("orders"), source(), ["q"]))
        assert b"".join([piece async for piece in store.body_stream(sent)]) == body

    asyncio.run(work())
    assert bodies(store) == [body]
    assert store.transactions() == []


def test_a_stream_waits_for_room_in_a_full_journal(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=20, transaction_buffer_operations_max=1)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    body = body_of(1700)
    with StoreNode(tmp_path / "node", settings, limits=limits, room_timeout_ms=0) as node:
        store = node.store
        store.create_address("orders").wait()
        store.create_queue(QueueConfig("q", "orders")).wait()
        sent = [store.store_stream(Message("orders"), pieces(body, 1000), ["q"]) for _ in range(4)]

        async def source() -> AsyncIterator[bytes]:
            yield body

        async def work() -> None:
            for each in [await store.store_stream_async(Message("orders"), source(), ["q"]) for _ in range(4)]:
                await each

        asyncio.run(work())
        assert bodies(store) == [body] * 8
        assert store.message(sent[0].wait()).body == body


@pytest.mark.parametrize(
    "limits",
    [
        {"queue_operations_max": 20, "transaction_buffer_operations_max": 1},
        {"staged_operations_max": 20},
        {"data_bytes_max": 8 * 18 + 48},
    ],
)
def test_a_message_of_more_chunks_than_the_journal_could_delete_or_name_is_refused(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    """Whatever `message_bytes_max` says: it would be stored, and could never be settled."""
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    with StoreNode(tmp_path / "node", settings, limits=Limits(**limits)) as node:
        store = node.store
        declare(store, "q")
        fits = store.store_stream(Message("orders"), pieces(body_of(1700), 1000), ["q"]).wait()
        for size in (1900, 100_000):
            with pytest.raises(MessageTooLargeError):
                store.store_stream(Message("orders"), pieces(body_of(size), 1000), ["q"])
            with pytest.raises(MessageTooLargeError):
                store.send(Message("orders", body_of(size)), ["q"])
        assert [info.message for info in infos(store)] == [fits]
        store.acknowledge(fits, "q").wait()
        assert kinds_in_journal(node)[CHUNK] == 0


@pytest.mark.parametrize("durable", [True, False])
def test_the_limit_holds_where_it_is_below_what_a_record_takes(tmp_path: Path, durable: bool) -> None:
    settings = StoreSettings(inline_bytes_max=500, chunk_bytes=100, message_bytes_max=300)
    with StoreNode(tmp_path / "node", settings) as node:
        store = node.store
        declare(store, "q")
        for size in (299, 300):
            message = Message("orders", body_of(size), durable=durable)
            assert store.message(store.send(message, ["q"]).wait()) == message
            assert store.incoming(message).data
        too_large = Message("orders", body_of(301), durable=durable)
        refuse(
            MessageTooLargeError,
            lambda: store.send(too_large, ["q"]),
            lambda: store.incoming(too_large),
            lambda: store.store_stream(Message("orders", durable=durable), pieces(too_large.body, 100), ["q"]),
        )
        assert len(infos(store)) == 2
        assert kinds_in_journal(node)[CHUNK] == 0


def test_a_body_that_no_transaction_holds_is_refused_at_once_however_busy_the_journal_is(tmp_path: Path) -> None:
    limits = Limits(staged_bytes_max=1500, queue_operations_max=50, transaction_buffer_operations_max=1)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100, read_timeout_ms=300)
    with StoreNode(tmp_path / "node", settings, limits=limits, room_timeout_ms=0) as node:
        declare(node.store, "q")
        with node.blocked_writer():
            for number in range(15):
                node.store.send(Message("orders", b"%d" % number), ["q"])
            with pytest.raises(FullError, match="staged_operations_max, _bytes_max"):
                node.store.store_stream(Message("orders"), pieces(body_of(3000), 1000), ["q"])
        node.store.flush().wait()
        assert len(infos(node.store)) == 15


def test_a_transaction_that_the_journal_cannot_hold_leaves_nothing(tmp_path: Path) -> None:
    limits = Limits(staged_bytes_max=1500)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    with StoreNode(tmp_path / "node", settings, limits=limits) as node:
        declare(node.store, "q")
        with pytest.raises(FullError):
            node.store.store_stream(Message("orders"), pieces(body_of(3000), 1000), ["q"])
        with pytest.raises(FullError):
            node.store.send(Message("orders", body_of(3000)), ["q"])
        assert (infos(node.store), node.store.transactions()) == ([], [])
        assert kinds_in_journal(node)[CHUNK] == 0


def test_64_mib_are_stored_and_read_in_pieces_with_the_default_limits(tmp_path: Path) -> None:
    mib = 1024 * 1024
    block = bytes(range(256)) * 4096
    with StoreNode(tmp_path / "node") as node:
        store = node.store
        declare(store, "q")
        assert node.settings.message_bytes_max == 64 * mib
        sent = store.store_stream(Message("orders"), (block for _ in range(64)), ["q"]).wait()
        with pytest.raises(MessageTooLargeError):
            store.store_stream(Message("orders"), [*([block] * 64), b"x"], ["q"])
        store = node.restart()
        expected, found = hashlib.sha256(), hashlib.sha256()
        for _ in range(64):
            expected.update(block)
        sizes = []
        for piece in store.body_stream(sent):
            found.update(piece)
            sizes.append(len(piece))
        assert (found.digest(), sum(sizes)) == (expected.digest(), 64 * mib)
        assert max(sizes) == node.settings.chunk_bytes


@pytest.mark.parametrize("reactivate", [None, StoreNode.restart, StoreNode.crash], ids=["live", "restart", "crash"])
def test_a_transaction_that_settles_more_than_one_group_deletes_can_be_committed(
    tmp_path: Path, reactivate: Reactivate | None
) -> None:
    """In doubt, it could neither be kept nor committed otherwise."""
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100, message_bytes_max=LIMIT, collect_operations_max=10)
    limits = Limits(queue_operations_max=50, transaction_buffer_operations_max=10)
    with StoreNode(tmp_path / "node", settings, limits=limits) as node:
        store = node.store
        declare(store, "q")
        sent = [store.send(Message("orders", body_of(LIMIT)), ["q"]).wait() for _ in range(4)]
        tx = store.begin()
        for message in sent[:3]:
            store.acknowledge(message, "q", tx=tx)
        store.prepare(tx, b"xid").wait()
        if reactivate is not None:
            store = reactivate(node)
        store.commit(tx).wait()
        assert [info.message for info in infos(store)] == sent[3:]
        if reactivate is not None:
            store = reactivate(node)
            assert [info.message for info in infos(store)] == sent[3:]
        store.flush().wait()
        while kinds_in_journal(node)[MESSAGE] > 1:
            store.queues()  # whoever enters goes on with it
        found = kinds_in_journal(node)
        assert (found[MESSAGE], found[CHUNK]) == (1, -(-LIMIT // 100))
        assert bodies(store) == [body_of(LIMIT)]
