"""What of a prepared branch a crash would take: whoever prepares it can know."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import transaction  # type: ignore[import-untyped]

from journal.store.chain.chain import MessageStoreChain
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from journal.store.transactions import NotDurable
from journal.xa.branch import Vote
from journal.xa.coordinator import Coordinator
from journal.xa.resource import XaResource
from journal.xa.session import Session
from journal.xa.xid import make_xid
from tests.support.stores import StoreNode, bodies
from tests.support.xa import START_MS, MemoryLog, opened

XID = make_xid(1, "global", "store")
WAIT_S = 30


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node") as node:
        node.store.create_address("orders")
        node.store.create_queue(QueueConfig("q", "orders")).wait(WAIT_S)
        yield node


def resource_of(node: StoreNode, transactions: MessageStore | MessageStoreChain | None = None) -> XaResource:
    return XaResource(transactions or node.store, node.journal, node.loader.loaded, clock_ms=lambda: START_MS)


def send(store: MessageStore | MessageStoreChain, tx: int, *, durable: bool) -> int:
    return store.send(Message("orders", b"one", durable=durable), ["q"], tx).id


@pytest.mark.parametrize("chained", [True, False])
def test_a_prepared_branch_tells_what_a_crash_would_take(node: StoreNode, chained: bool) -> None:
    store = MessageStoreChain([node.store]) if chained else node.store
    resource = resource_of(node, store)
    resource.tpc_begin(XID)
    lost = send(store, resource.tx(XID), durable=False)
    send(store, resource.tx(XID), durable=True)
    resource.end(XID)
    assert resource.tpc_prepare(XID) is Vote.COMMIT
    assert resource.not_durable(XID) == NotDurable(messages=(lost,), references=((lost, "q"),))
    node.crash()
    resource = resource_of(node)
    assert not resource.not_durable(XID)
    resource.tpc_commit(XID)
    assert bodies(node.store) == [b"one"]


def test_a_session_tells_what_a_crash_would_take_of_its_branch(node: StoreNode) -> None:
    session = Session(resource_of(node))
    session.tpc_begin(XID)
    lost = send(node.store, session.tx, durable=False)
    session.tpc_prepare()
    assert session.not_durable.messages == (lost,)


@pytest.mark.parametrize("durable", [True, False])
def test_a_vote_notes_what_a_crash_would_take(node: StoreNode, durable: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    coordinator = Coordinator(resource_of(node), "test", [], instance="0" * 16)
    with transaction.manager:
        work = coordinator.join(transaction.manager)
        sent = send(node.store, work.tx, durable=durable)
    assert (f"would take of it: NotDurable(messages=({sent},)" in caplog.text) == (not durable)


def test_a_journal_has_nothing_that_is_not_durable() -> None:
    _, resource = opened(MemoryLog())
    resource.tpc_begin(XID)
    resource.tx(XID)
    resource.end(XID)
    resource.tpc_prepare(XID)
    assert not resource.not_durable(XID)
