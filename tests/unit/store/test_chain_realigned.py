"""Stores of a chain that a crash left apart hold the same again, whichever of them was behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from journal.errors import DuplicateMessageError
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.lockstep import chained_id
from journal.store.chain.realigning import Realigned, realign
from journal.store.model import Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.children import chain as chain_program
from tests.support.stores import StoreNode, bodies, copy_living

SETTINGS = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
WAIT_S = 30


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[StoreNode]]:
    with ExitStack() as open_nodes:
        found = [StoreNode(tmp_path / name, SETTINGS) for name in ("first", "second")]
        for node in found:
            open_nodes.callback(node.close)
        chain = chain_of(found)
        chain.create_address("orders", 5)
        for name in "qr":
            chain.create_queue(QueueConfig(name, "orders")).wait(WAIT_S)
        yield found


def chain_of(nodes: list[StoreNode]) -> MessageStoreChain:
    return MessageStoreChain([node.store for node in nodes])


def realigned(nodes: list[StoreNode]) -> Realigned:
    (done,) = realign([node.store for node in nodes])
    return done


def require_same(nodes: list[StoreNode], put_back: Sequence[tuple[str, int]] = ()) -> None:
    first, second = (node.store for node in nodes)
    chain_program.require_same(first, second, dict.fromkeys(put_back, 1))


def lacking(nodes: list[StoreNode]) -> list[tuple[str, int]]:
    first, second = (node.store for node in nodes)
    return chain_program.lacking(first, second)


def test_stores_that_hold_the_same_are_left_alone(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.send(Message("orders", b"one"), ["q", "r"]).wait(WAIT_S)
    chain.take("q", "h")
    for node in nodes:
        node.store.flush().wait(WAIT_S)
    assert not realigned(nodes)
    for node in nodes:
        node.crash()
    assert not realigned(nodes)


def test_what_only_the_first_store_got_the_other_gets_too(nodes: list[StoreNode]) -> None:
    chain, first = chain_of(nodes), nodes[0].store
    both = chain.send(Message("orders", b"both"), ["q"]).wait(WAIT_S)
    first.send(Message("orders", b"x" * 1000, duplicate_id=b"id"), ["q", "r"])
    first.route(both, "r")
    first.deliveries(both, "q", 4)
    first.take("q", "h")
    first.create_address("new")
    first.create_queue(QueueConfig("new/q", "new"))
    first.bind("q", "key").wait(WAIT_S)
    done = realigned(nodes)
    assert (done.added, done.removed, done.declared, done.changed) == (3, 0, 3, 1)
    require_same(nodes)
    assert not realigned(nodes)


def test_messages_cut_off_from_the_other_store_come_there_in_the_order_of_the_first(nodes: list[StoreNode]) -> None:
    """The order of each queue is kept, also of messages in several queues, and of one routed behind younger ones."""
    chain, first = chain_of(nodes), nodes[0].store
    sent = {body: chain.store(Message("orders", body)).wait(WAIT_S) for body in (b"routed", b"both routed")}
    for number, queues in enumerate([["r"], ["q", "r"], ["r"], ["q"], ["r", "q"], ["q"]]):
        first.send(Message("orders", b"%d" % number, priority=4 + number % 2), queues)
    first.route(sent[b"routed"], "q")
    for queue in "rq":
        first.route(sent[b"both routed"], queue)
    first.send(Message("orders", b"last"), ["q", "r"]).wait(WAIT_S)
    expected = {queue: bodies(first, queue) for queue in "qr"}
    assert realigned(nodes).added == 13
    assert {queue: bodies(nodes[1].store, queue) for queue in "qr"} == expected
    require_same(nodes)
    nodes[1].crash()
    require_same(nodes)


def test_what_another_store_has_beyond_the_first_is_undone_in_it(nodes: list[StoreNode]) -> None:
    chain, (_, second) = chain_of(nodes), (node.store for node in nodes)
    kept, acquired = (chain.send(Message("orders", body), ["q"]).wait(WAIT_S) for body in (b"kept", b"acquired"))
    second.send(Message("orders", b"extra"), ["q", "r"])
    second.acknowledge(chained_id(kept), "q")
    second.acquire(chained_id(acquired), "q", "h")
    second.create_queue(QueueConfig("extra", "orders"))
    second.destroy_queue("r")
    second.bind("q", "key")
    second.prepare(second.begin(), b"never told")
    second.flush().wait()
    done = realigned(nodes)
    assert (done.rolled_back, done.removed, done.added, done.changed) == (1, 1, 1, 1)
    require_same(nodes, [("q", chained_id(kept))])


def test_a_message_whose_duplicate_id_the_other_store_has_seen_is_put_back_with_it(nodes: list[StoreNode]) -> None:
    chain, (first, second) = chain_of(nodes), (node.store for node in nodes)
    sent = chain.send(Message("orders", b"one", duplicate_id=b"id"), ["q"]).wait(WAIT_S)
    second.acknowledge(chained_id(sent), "q").wait(WAIT_S)
    assert realigned(nodes).added == 1
    assert first.message(sent).duplicate_id == second.message(chained_id(sent)).duplicate_id == b"id"
    with pytest.raises(DuplicateMessageError):
        second.send(Message("orders", b"one", duplicate_id=b"id"), ["q"])
    require_same(nodes)


@pytest.mark.parametrize("settle", [MessageStore.commit, MessageStore.rollback], ids=["commit", "rollback"])
def test_what_another_store_has_settled_already_is_settled_in_the_first_when_its_coordinator_says_so_again(
    nodes: list[StoreNode], settle: Callable[[MessageStore, int], Any]
) -> None:
    chain = chain_of(nodes)
    acknowledged = chain.send(Message("orders", b"acknowledged"), ["q"]).wait(WAIT_S)
    tx = chain.begin()
    chain.send(Message("orders", b"added"), ["r"], tx)
    chain.acknowledge(acknowledged, "q", tx=tx)
    chain.prepare(tx, b"xid").wait(WAIT_S)
    settle(nodes[1].store, chained_id(tx)).wait(WAIT_S)
    for node in nodes:
        node.crash()
    assert not realigned(nodes)
    chain = chain_of(nodes)
    (chain.commit if settle is MessageStore.commit else chain.rollback)(tx).wait(WAIT_S)
    require_same(nodes)
    chain.send(Message("orders", b"goes on"), ["q"]).wait(WAIT_S)
    require_same(nodes)


@pytest.mark.parametrize("settle", [MessageStore.commit, MessageStore.rollback], ids=["commit", "rollback"])
@pytest.mark.parametrize("settled_by", ["nobody", "second"])
def test_what_a_transaction_in_doubt_creates_or_destroys_is_left_as_another_store_has_settled_it(
    nodes: list[StoreNode], settle: Callable[[MessageStore, int], Any], settled_by: str
) -> None:
    chain = chain_of(nodes)
    chain.send(Message("orders", b"in a queue that may go"), ["r"]).wait(WAIT_S)
    bound = chain.bind("q", "old").wait(WAIT_S)
    chain.create_address("old").wait(WAIT_S)
    tx = chain.begin()
    chain.destroy_queue("r", tx)
    chain.unbind(bound, tx)
    chain.destroy_address("old", tx)
    chain.create_address("new", 5, tx)
    chain.create_queue(QueueConfig("n", "new"), tx)
    chain.bind("n", "in it", tx=tx)
    chain.bind("q", "new", tx=tx)
    chain.prepare(tx, b"xid").wait(WAIT_S)
    if settled_by == "second":
        settle(nodes[1].store, chained_id(tx)).wait(WAIT_S)
    for node in nodes:
        node.crash()
    assert not realigned(nodes)
    chain = chain_of(nodes)
    (chain.commit if settle is MessageStore.commit else chain.rollback)(tx).wait(WAIT_S)
    require_same(nodes)
    assert not realigned(nodes)
    for address, queue in [("new", "n")] if settle is MessageStore.commit else [("orders", "r")]:
        chain.send(Message(address, b"goes on"), [queue]).wait(WAIT_S)
        taken = chain.take(queue, "h")
        assert taken is not None
        chain.acknowledge(taken.message, queue, "h").wait(WAIT_S)
    require_same(nodes)


def test_what_no_transaction_in_doubt_declares_is_still_brought_in_line(nodes: list[StoreNode]) -> None:
    chain, (first, second) = chain_of(nodes), (node.store for node in nodes)
    tx = chain.begin()
    chain.create_queue(QueueConfig("in doubt", "orders"), tx)
    chain.prepare(tx, b"xid").wait(WAIT_S)
    first.create_queue(QueueConfig("lacks", "orders")).wait(WAIT_S)
    second.create_queue(QueueConfig("extra", "orders")).wait(WAIT_S)
    assert realigned(nodes).declared == 2
    require_same(nodes)


@pytest.mark.parametrize("behind", [0, 1], ids=["first-behind", "second-behind"])
@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_lost_the_last_operations_is_brought_in_line(
    nodes: list[StoreNode], tmp_path: Path, seed: int, behind: int
) -> None:
    random, chain = Random(seed), chain_of(nodes)
    operate(chain, random, 30)
    old = tmp_path / "old"
    old.mkdir()
    copy_living(nodes[behind].directory, old / "0")
    operate(chain, random, 10)
    with StoreNode(old, SETTINGS) as returned:
        left = [returned, nodes[1]] if behind == 0 else [nodes[0], returned]
        left[1 - behind].crash()
        # what the second store had lost is last in the first one as well; what it had settled is not
        put_back = lacking(left) if behind == 0 else []
        realigned(left)
        require_same(left, put_back)
        assert not realigned(left)
        operate(chain_of(left), random, 10)
        require_same(left, put_back)


def operate(chain: MessageStoreChain, random: Random, count: int) -> None:
    """Operations that the first store allows."""
    for _ in range(count):
        queue = random.choice("qr")
        there = [info for info in chain.browse(queue) if info.state.value in ("ready", "held")]
        if len(there) < 3 or random.random() < 0.4:
            queues = random.choice([["q"], ["r"], ["q", "r"]])
            chain.send(Message("orders", random.randbytes(random.choice([5, 300]))), queues).wait(WAIT_S)
            continue
        info = random.choice(there)
        match random.randrange(5):
            case 0:
                chain.acknowledge(info.message, queue, info.holder).wait(WAIT_S)
            case 1:
                chain.acquire(info.message, queue, info.holder or "h").wait(WAIT_S)
            case 2:
                chain.deliveries(info.message, queue, random.randrange(5)).wait(WAIT_S)
            case 3:
                chain.bind(queue, str(random.random())).wait(WAIT_S)
            case 4:
                tx = chain.begin()
                chain.acknowledge(info.message, queue, info.holder, tx)
                chain.send(Message("orders", b"in a transaction"), [queue], tx)
                chain.commit(tx).wait(WAIT_S)
