"""A store with more references than memory takes: most wait in the index, and nothing else is different."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from journal.errors import LocalStorageError, MessageHeldError, MessageMissingError
from journal.store.model import Message, QueueConfig, ReferenceState
from journal.store.queues.index import Paged
from journal.store.queues.rocks_index import RocksReferenceIndex
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK, MESSAGE
from tests.support.references import MemoryIndex
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, send, taken

IN_MEMORY = (40, 8)
MESSAGES = 60
CHUNK_BYTES = 50
LARGE_BYTES = 102

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    """With address "orders" and queues "q" and "r"."""
    indexes: list[RocksReferenceIndex] = []

    def index() -> RocksReferenceIndex:
        indexes.append(RocksReferenceIndex(tmp_path / f"index-{uuid.uuid4().hex}"))
        return indexes[-1]

    settings = StoreSettings(
        inline_bytes_max=CHUNK_BYTES,
        chunk_bytes=CHUNK_BYTES,
        collect_operations_max=10,
        release_operations_max=10,
        expiry_agreement_ms=0,
    )
    with StoreNode(tmp_path / "node", settings, in_memory=IN_MEMORY, index=index) as running:
        declare(running.store, "q", "r")
        yield running
    for each in indexes:
        each.close()


def body(number: int) -> bytes:
    """Every seventh is large."""
    return b"%03d" % number * (LARGE_BYTES // 3 if number % 7 == 0 else 1)


def fill(store: MessageStore, *queues: str, count: int = MESSAGES, **message: int | bool) -> list[int]:
    pending = [store.send(Message("orders", body(number), **message), queues or ("q",)) for number in range(count)]
    store.flush().wait()
    return [each.id for each in pending]


def chunks_of(count: int) -> int:
    """How many chunks the first messages have."""
    return sum(-(-len(body(number)) // CHUNK_BYTES) for number in range(count) if len(body(number)) > CHUNK_BYTES)


def require_paged(node: StoreNode) -> None:
    """Most of a filled queue is not in memory."""
    assert node.store.queue("q").ready + node.store.queue("q").scheduled == MESSAGES
    assert node.loader.loaded.state.references_in_memory <= IN_MEMORY[0]


@BOTH
@pytest.mark.parametrize("durable", [True, False])
def test_bodies_and_order_are_as_they_were_sent(node: StoreNode, reactivate: Reactivate, durable: bool) -> None:
    store = reactivate(node)
    sent = fill(store, durable=durable)
    require_paged(node)
    if durable:
        store = reactivate(node)
        require_paged(node)
    expected = [body(number) for number in range(MESSAGES)]
    assert bodies(store) == expected
    store.acknowledge(sent[50], "q").wait()
    del expected[50]
    assert taken(store) == expected
    assert store.take("q", "h") is None
    for message in sent[:50] + sent[51:]:
        store.acknowledge(message, "q", "h")
    store.flush().wait()
    assert (kinds_in_journal(node)[MESSAGE], kinds_in_journal(node)[CHUNK], store.volatile_bytes) == (0, 0, (0, 0))
    with pytest.raises(MessageMissingError):
        store.message(sent[50])


@BOTH
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_locks_what_waits_in_the_index(node: StoreNode, reactivate: Reactivate, commits: bool) -> None:
    """The whole of a queue, and the same messages in another one; settled where it began or after a load."""
    store = node.store
    sent = fill(store)
    before = infos(store)
    tx = store.begin()
    for message in sent[:40]:
        store.acknowledge(message, "q", tx=tx)
        store.route(message, "r", tx=tx)
    for message in sent[40:]:
        store.schedule(message, "q", node.clock() + 9, tx)
    added = send(store, b"added", "q", "r", tx=tx)
    store.prepare(tx).wait()
    store = reactivate(node)
    assert [info.state for info in infos(store)] == [ReferenceState.LOCKED] * MESSAGES
    assert (taken(store), taken(store, "r")) == ([], [])
    for message in (sent[0], sent[-1]):
        with pytest.raises(MessageHeldError):
            store.acquire(message, "q", "h")
    (store.commit if commits else store.rollback)(tx).wait()
    store.flush().wait()
    for loads in (False, True):
        if loads:
            store = reactivate(node)
        if commits:
            assert [info.message for info in infos(store, "r")] == [*sent[:40], added]
            assert [info.state for info in infos(store)] == [ReferenceState.SCHEDULED] * 20 + [ReferenceState.READY]
        else:
            assert (infos(store), infos(store, "r")) == (before, [])
    assert kinds_in_journal(node)[MESSAGE] == MESSAGES + commits


@BOTH
def test_a_queue_that_is_destroyed_takes_what_waits_in_the_index_along(node: StoreNode, reactivate: Reactivate) -> None:
    store = node.store
    shared = fill(store, "q", "r", count=20)
    alone = fill(store)
    volatile = fill(store, durable=False, count=20)
    store.create_queue(QueueConfig("s", "orders")).wait()
    store.route(shared[0], "s").wait()
    store.destroy_queue("q").wait()
    deleted = MESSAGES + chunks_of(MESSAGES)
    while store.collected < deleted:
        store.flush().wait()
    assert (kinds_in_journal(node)[MESSAGE], store.volatile_bytes) == (20, (0, 0))
    assert (kinds_in_journal(node)[CHUNK], store.collected) == (chunks_of(20), deleted)
    for message in (*alone, *volatile):
        with pytest.raises(MessageMissingError):
            store.describe(message)
    store = reactivate(node)
    assert store.orphaned_messages == 0
    assert taken(store, "r") == [body(number) for number in range(20)]
    assert taken(store, "s") == [body(0)]


@BOTH
def test_what_waits_in_the_index_becomes_due_and_expires(node: StoreNode, reactivate: Reactivate) -> None:
    store = node.store
    start = node.clock()
    times = [start + 100 * (number % 5 + 1) for number in range(MESSAGES)]
    for number, due in enumerate(times):
        store.send(Message("orders", body(number), due=due, expires=start + 350 if number % 2 else 0), ["q"])
    store.flush().wait()
    store = reactivate(node)
    require_paged(node)
    assert (store.next_due(), taken(store)) == (start + 100, [])
    moved = infos(store)[4].message
    store.schedule(moved, "q", 0).wait()
    assert taken(store) == [body(4)]
    for passed in (100, 200, 300):
        node.clock.now_ms = start + passed
        assert store.tick() == MESSAGES // 5
        assert taken(store) == [body(number) for number, due in enumerate(times) if due == start + passed]
    node.clock.now_ms = start + 500
    expired = {number for number, due in enumerate(times) if number % 2 and due > start + 350}
    assert taken(store) == [
        body(number) for number, due in enumerate(times) if due > start + 350 and number not in expired | {4}
    ]
    told = store.expired()
    assert {store.message(message).body for message, _ in told} == {body(number) for number in expired}
    for message, queue in told:
        store.expire(message, queue)
    assert store.expired() == []


@BOTH
def test_a_later_route_goes_by_when_the_message_itself_is_due(node: StoreNode, reactivate: Reactivate) -> None:
    store = node.store
    due = node.clock() + 100
    sent = fill(store, due=due)
    store.schedule(sent[-2], "q", 0).wait()
    store = reactivate(node)
    require_paged(node)
    for message in sent[-2:]:
        store.route(message, "r").wait()
    store.route(sent[-3], "r", due + 1).wait()
    for _ in range(2):
        assert [(info.message, info.due) for info in infos(store, "r")] == [
            (sent[-2], due), (sent[-1], due), (sent[-3], due + 1)
        ]  # fmt: skip
        store = reactivate(node)


class FullIndex(MemoryIndex):
    """Takes no more than three references."""

    def put(self, paged: Paged) -> None:
        if len(self.rows) == 3:
            raise LocalStorageError("the disk is full")
        super().put(paged)


def test_a_store_whose_index_fails_while_messages_arrive_refuses_everything(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "node", in_memory=IN_MEMORY, index=FullIndex) as node:
        declare(node.store, "q", "r")
        with node.blocked_writer():
            for number in range(IN_MEMORY[1] + 4):
                node.store.send(Message("orders", body(number)), ["q"])
            sent = node.store.send(Message("orders", b"behind"), ["r"])
        sent.wait()
        for _ in range(2):
            with pytest.raises(LocalStorageError, match="the disk is full"):
                node.store.take("r", "h")


def test_what_is_held_by_one_who_lets_go_waits_in_the_index_again(node: StoreNode, store: MessageStore) -> None:
    sent = fill(store)
    assert len(taken(store)) == MESSAGES
    store.flush().wait()
    store = node.crash()
    assert store.take("q", "other") is None
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert store.tick() == 0
    assert [(info.message, info.deliveries) for info in infos(store)] == [(message, 0) for message in sent]
    assert taken(store, "q", "other") == [body(number) for number in range(MESSAGES)]
