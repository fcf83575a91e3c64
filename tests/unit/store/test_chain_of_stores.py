"""A chain of real stores, each on a RocksDB of its own: both hold the same, also after both were restarted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from journal.errors import MessageMissingError
from journal.store.chain import MessageStoreChain
from journal.store.lockstep import chained_id
from journal.store.model import Message, QueueConfig
from tests.support.stores import StoreNode

QUEUE = QueueConfig("orders/eu", "orders")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[StoreNode]]:
    with ExitStack() as open_nodes:
        found = [StoreNode(tmp_path / name) for name in ("first", "second")]
        for node in found:
            open_nodes.callback(node.close)
        yield found


def chain_of(nodes: list[StoreNode]) -> MessageStoreChain:
    return MessageStoreChain([node.store for node in nodes], names=["first", "second"])


def bodies(node: StoreNode) -> list[bytes]:
    return [node.store.message(info.message).body for info in node.store.browse(QUEUE.name)]


def test_both_stores_hold_what_the_chain_was_told_and_forget_what_it_settled(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    sent = [chain.send(Message("orders", b"%d" % number), [QUEUE.name]) for number in range(5)]
    for pending in sent:
        pending.wait(10)
    chain.acknowledge(sent[0].id, QUEUE.name).wait(10)
    tx = chain.begin()
    chain.acknowledge(sent[1].id, QUEUE.name, tx=tx)
    chain.send(Message("orders", b"in a transaction"), [QUEUE.name], tx=tx)
    chain.commit(tx).wait(10)
    kept = [b"2", b"3", b"4", b"in a transaction"]
    assert [bodies(node) for node in nodes] == [kept, kept]
    for node in nodes:
        node.restart()
    assert [bodies(node) for node in nodes] == [kept, kept]
    chain = chain_of(nodes)
    delivery = chain.take(QUEUE.name, "holder")
    assert delivery is not None
    chain.acknowledge(delivery.message, QUEUE.name, "holder").wait(10)
    assert [bodies(node) for node in nodes] == [kept[1:], kept[1:]]


def test_what_the_first_store_refuses_reaches_no_other(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    sent = chain.send(Message("orders", b"one"), [QUEUE.name])
    sent.wait(10)
    chain.acknowledge(sent.id, QUEUE.name).wait(10)
    with pytest.raises(MessageMissingError):
        chain.acknowledge(sent.id, QUEUE.name)
    assert chain.error is None
    assert [bodies(node) for node in nodes] == [[], []]


def test_the_second_store_knows_a_message_by_an_id_derived_from_the_chains(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    sent = chain.send(Message("orders", b"one"), [QUEUE.name])
    sent.wait(10)
    assert nodes[0].store.message(sent.id).body == nodes[1].store.message(chained_id(sent.id)).body == b"one"


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_a_transaction_over_the_chain_changes_and_declares_in_both_stores_or_in_none(
    nodes: list[StoreNode], commit: bool
) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    held, ready = (chain.send(Message("orders", body), [QUEUE.name]).wait(10) for body in (b"held", b"ready"))
    chain.acquire(held, QUEUE.name, "h").wait(10)
    tx = chain.begin()
    chain.release(held, QUEUE.name, "h", tx)
    chain.acquire(ready, QUEUE.name, "i", tx)
    chain.deliveries(ready, QUEUE.name, 4, tx)
    chain.create_queue(QueueConfig("new", "orders"), tx)
    chain.bind("new", "key", tx=tx)
    chain.prepare(tx, b"xid").wait(10)
    for node in nodes:
        node.crash()
    chain = chain_of(nodes)
    (chain.commit if commit else chain.rollback)(tx).wait(10)
    for node in nodes:
        found = [(info.state.value, info.holder, info.deliveries) for info in node.store.browse(QUEUE.name)]
        if commit:
            assert found == [("ready", "", 1), ("held", "i", 4)]
            assert [binding.key for binding in node.store.bindings("new")] == ["key"]
        else:
            assert found == [("held", "h", 0), ("ready", "", 0)]
            assert len(node.store.queues()) == 1
    delivery = chain.take(QUEUE.name, "h")
    assert delivery is not None
    assert delivery.message == (held if commit else ready)
