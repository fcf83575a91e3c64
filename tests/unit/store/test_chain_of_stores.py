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
