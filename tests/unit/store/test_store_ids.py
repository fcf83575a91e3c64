"""Ids that a caller chooses: refused while anything has them, and passed over when the journal would issue them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from journal.errors import InvalidOperationError, MessageMissingError, QueueFullError, StoreError
from journal.limits import Limits
from journal.store.chain.lockstep import chained_id
from journal.store.model import Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, send

LARGE = 250
"""Bytes, of three chunks."""


@pytest.fixture
def node(small_node: StoreNode) -> StoreNode:
    return small_node


def fill(store: MessageStore) -> None:
    """A queue of 20 operations, of which none is written meanwhile."""
    for _ in range(10):
        store.send(Message("orders", b"fills"), ["q"])
    with pytest.raises(QueueFullError):
        store.send(Message("orders", b"has no room"), ["q"])


def next_id(node: StoreNode) -> int:
    """What the journal issues next in the virtual shard of "orders"."""
    return node.journal.new_id(node.store.queue("q").record_id & 1023) + 1024


def in_a_transaction(store: MessageStore, config: QueueConfig) -> int:
    return store.create_queue(config, tx=store.begin()).id


def unbound(store: MessageStore, queue: str, id: int = 0) -> int:
    binding = store.bind(queue, id=id).wait()
    store.unbind(binding, tx=store.begin())
    return binding


def of_a_chain(store: MessageStore) -> int:
    return chained_id(store.queue("q").record_id)


def queue_not_durable(store: MessageStore) -> str:
    store.create_queue(QueueConfig("v", "orders", durable=False)).wait()
    return "v"


def destroyed_with_its_queue(store: MessageStore) -> int:
    store.create_queue(QueueConfig("going", "orders", durable=False)).wait()
    binding = store.bind("going").wait()
    store.destroy_queue("going", tx=store.begin())
    return binding


def settled_large(store: MessageStore) -> int:
    """The chunk's id of a message that a transaction has deleted by its commit."""
    sent, tx = send(store, b"s" * LARGE, "r"), store.begin()
    chunk = store.describe(sent).chunks[0]
    store.acknowledge(sent, "r", tx=tx)
    store.prepare(tx).wait()
    return chunk


USED: dict[str, Callable[[MessageStore], int]] = {
    "queue": lambda store: store.queue("q").record_id,
    "queue that is not durable": lambda store: store.create_queue(QueueConfig("v", "orders", durable=False)).wait(),
    "address": lambda store: store.addresses()[0].record_id,
    "binding": lambda store: store.bind("q").wait(),
    "chunk": lambda store: store.describe(send(store, b"c" * LARGE, "r")).chunks[1],
    "chunk that is not durable": lambda store: store.describe(send(store, b"c" * LARGE, "r", durable=False)).chunks[1],
    "chunk that is going": settled_large,
    "chunk of a transaction": lambda store: store.describe(send(store, b"c" * LARGE, "r", tx=store.begin())).chunks[1],
    "queue of a transaction": lambda store: in_a_transaction(store, QueueConfig("new", "orders")),
    "queue of a transaction that is not durable": lambda store: in_a_transaction(
        store, QueueConfig("new", "orders", durable=False)
    ),
    "binding of a transaction": lambda store: store.bind("q", tx=store.begin()).id,
    "binding of a transaction that is not durable": lambda store: (
        store.bind(queue_not_durable(store), tx=store.begin()).id
    ),
    "binding of a transaction of a chain": lambda store: store.bind("q", tx=store.begin(), id=of_a_chain(store)).id,
    "binding that goes": lambda store: unbound(store, "q"),
    "binding that goes and is not durable": lambda store: unbound(store, queue_not_durable(store)),
    "binding of a chain that goes": lambda store: unbound(store, "q", of_a_chain(store)),
    "binding that goes with its queue": destroyed_with_its_queue,
}


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("what", USED)
def test_an_id_that_anything_has_is_refused_and_nothing_is_changed(
    node: StoreNode, store: MessageStore, what: str, durable: bool
) -> None:
    used = USED[what](store)
    store.flush().wait()
    before = store.volatile_bytes, kinds_in_journal(node), store.transactions(), infos(store)
    small, large = (Message("orders", b"x" * size, durable=durable) for size in (10, LARGE))
    empty = Message("orders", durable=durable)

    def body() -> Iterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    tx = store.begin()
    refused: list[Callable[[], object]] = [
        lambda: store.store(small, id=used),
        lambda: store.send(small, ["q"], id=used),
        lambda: store.send(small, ["q"], tx, id=used),
        lambda: store.send(large, ["q"], id=used),
        lambda: store.store_stream(empty, body(), ["q"], id=used),
        lambda: store.bind("r", id=used),
    ]
    for call in refused:
        with pytest.raises(StoreError, match="in use"):
            call()
    store.commit(tx).wait()
    assert (store.volatile_bytes, kinds_in_journal(node), store.transactions(), infos(store)) == before


def queue_and_binding(store: MessageStore, *, durable: bool) -> int:
    name = f"q{len(store.queues())}"
    store.create_queue(QueueConfig(name, "orders", durable=durable)).wait()
    return store.bind(name).wait()


def large_not_durable(store: MessageStore) -> int:
    return send(store, b"v" * LARGE, durable=False)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("wrong", [-1024, 1 << 63])
def test_a_chosen_id_that_is_out_of_range_is_refused(store: MessageStore, wrong: int, durable: bool) -> None:
    shard = store.queue("q").record_id & 1023
    with pytest.raises(InvalidOperationError):
        store.send(Message("orders", b"x", durable=durable), ["q"], id=wrong | shard)
    assert infos(store) == []


def transacted(store: MessageStore) -> int:
    tx = store.begin()
    sent = send(store, b"d", tx=tx)
    store.commit(tx).wait()
    return sent


ISSUING: dict[str, Callable[[MessageStore], int]] = {
    "small": lambda store: send(store, b"d"),
    "large": lambda store: send(store, b"d" * LARGE),
    "in a transaction": transacted,
    "binding": lambda store: store.bind("q").wait(),
    "queue": lambda store: store.create_queue(QueueConfig(f"q{len(store.queues())}", "orders")).wait(),
}


@pytest.mark.parametrize("issuing", ISSUING)
@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("chosen_in", ["a transaction", ""])
def test_the_journal_issues_no_id_that_a_message_has_which_is_not_durable(
    node: StoreNode, store: MessageStore, issuing: str, size: int, chosen_in: str
) -> None:
    chosen = next_id(node) + 4 * 1024
    message = Message("orders", b"v" * size, durable=False)
    tx = store.begin() if chosen_in else 0
    store.send(message, ["r"], tx, id=chosen)
    if tx:
        store.commit(tx)
    issued = [ISSUING[issuing](store) for _ in range(6)]
    assert chosen not in issued
    assert next_id(node) > chosen
    assert store.message(chosen) == message
    messages = [store.message(each).body for each in issued if issuing not in ("binding", "queue")]
    assert bodies(store) == messages
    assert bodies(node.crash()) == messages


@pytest.mark.parametrize("crashes", [True, False])
def test_what_a_client_was_told_of_what_is_not_durable_names_nothing_else_behind_an_activation(
    node: StoreNode, store: MessageStore, crashes: bool
) -> None:
    told = {send(store, b"v", durable=False), queue_and_binding(store, durable=False)}
    sent = store.take("q", "client")
    assert sent is not None
    store.flush().wait()
    store = node.crash() if crashes else node.restart()
    issued = [send(store, b"d"), send(store, b"v", durable=False), store.bind("q").wait(), large_not_durable(store)]
    assert told.isdisjoint(issued)
    with pytest.raises(MessageMissingError):
        store.acknowledge(sent.message, "q", "client")


def test_a_chosen_id_may_be_issued_once_its_message_is_gone(node: StoreNode, store: MessageStore) -> None:
    chosen = next_id(node)
    for settle in (True, False):
        tx = 0 if settle else store.begin()
        store.send(Message("orders", b"v", durable=False), ["q"], tx, id=chosen)
        if settle:
            store.acknowledge(chosen, "q").wait()
        else:
            store.rollback(tx).wait()
    assert send(store, b"d") == chosen
    assert bodies(node.crash()) == [b"d"]


def test_a_binding_gets_no_id_that_another_binding_has(node: StoreNode, store: MessageStore) -> None:
    store.create_queue(QueueConfig("v", "orders", durable=False)).wait()
    chosen = next_id(node)
    store.bind("v", "chosen", id=chosen).wait()
    other = store.bind("q", "issued").wait()
    assert other != chosen
    assert [each.key for each in store.bindings("v")] == ["chosen"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_large_message_takes_no_chosen_id_from_itself(node: StoreNode, store: MessageStore, durable: bool) -> None:
    chosen = next_id(node) + 1024
    stream = store.store_stream(Message("orders", durable=durable), [b"x" * LARGE], ["q"], id=chosen)
    assert stream.wait() == chosen
    assert bodies(store) == [b"x" * LARGE]
    assert kinds_in_journal(node)[CHUNK] == (3 if durable else 0)


def test_a_stream_with_a_chosen_id_begins_in_a_full_journal(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=20, transaction_buffer_operations_max=1)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    with StoreNode(tmp_path / "node", settings, limits=limits, room_timeout_ms=0) as node, ExitStack() as full:
        declare(node.store, "q")
        store, chosen = node.store, next_id(node)

        def body() -> Iterator[bytes]:
            full.close()
            store.flush().wait()
            yield b"x" * LARGE

        full.enter_context(node.blocked_writer())
        fill(store)
        store.store_stream(Message("orders"), body(), ["q"], id=chosen).wait()
        assert store.message(chosen).body == b"x" * LARGE


def test_what_is_not_durable_needs_no_room_in_the_journal_for_the_id_that_a_chain_gives_it(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=20, transaction_buffer_operations_max=1)
    with StoreNode(tmp_path / "node", limits=limits, room_timeout_ms=0) as node:
        declare(node.store, "q", "r")
        store, chosen = node.store, chained_id(next_id(node))
        with node.blocked_writer():
            fill(store)
            assert store.send(Message("orders", b"v", durable=False), ["r"], id=chosen).wait() == chosen
        assert bodies(store, "r") == [b"v"]
