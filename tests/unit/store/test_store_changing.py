"""Queues that change, pause and are purged, with what is in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journal.errors import InvalidOperationError, JournalError, QueueMissingError, StateError
from journal.store.chain.realigning import realign
from journal.store.model import Message, QueueConfig, Routing
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, bodies, declare, kinds_in_journal, send, taken

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])
CHANGED = QueueConfig(
    "q",
    "orders",
    filter="a = 1",
    exclusive=True,
    deliveries_max=3,
    dead_letter_address="d",
    expiry_address="e",
    journaled_acquisition=True,
)


def queue_config(name: str, address: str, routing: Routing = Routing.ANYCAST, **fields: Any) -> QueueConfig:
    """A queue as `declare` makes it."""
    return QueueConfig(name, address, routing, journaled_acquisition=True, **fields)


@BOTH
def test_a_queue_that_changes_keeps_what_is_in_it(node: StoreNode, store: MessageStore, reactivate: Reactivate) -> None:
    send(store, b"one", "q")
    bound = store.bind("q", "key").wait()
    store.change_queue(replace(CHANGED, filter="b = 2"))
    store.change_queue(CHANGED).wait()
    before = store.queues(), kinds_in_journal(node)
    assert store.queue("q").config == CHANGED
    store = reactivate(node)
    assert {info.config.name: info.config for info in store.queues()} == {
        "q": CHANGED,
        "r": queue_config("r", "orders"),
    }
    assert (bodies(store), [each.record_id for each in store.bindings("q")]) == ([b"one"], [bound])
    assert kinds_in_journal(node) == before[1]
    store.destroy_queue("q").wait()
    store.create_queue(queue_config("q", "orders")).wait()
    assert reactivate(node).queue("q").config == queue_config("q", "orders")


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        (queue_config("no", "orders"), QueueMissingError, "'no'"),
        (queue_config("q", "other"), InvalidOperationError, "its address: create another queue"),
        (queue_config("q", "orders", Routing.MULTICAST, durable=False), InvalidOperationError, "its routing, durable"),
        (
            queue_config("q", "orders", client_id="c", subscription="s"),
            InvalidOperationError,
            "client_id, subscription",
        ),
        (queue_config("q", "orders", expiry_address="orders"), InvalidOperationError, "its own address"),
        (queue_config("q", "orders", deliveries_max=-1), InvalidOperationError, "cannot hold that"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(
    store: MessageStore, config: QueueConfig, error: type[JournalError], says: str
) -> None:
    before = store.queues()
    with pytest.raises(error, match=says):
        store.change_queue(config)
    assert store.queues() == before


def test_a_queue_that_a_transaction_creates_or_destroys_is_not_changed(store: MessageStore) -> None:
    tx = store.begin()
    store.create_queue(queue_config("new", "orders"), tx)
    store.destroy_queue("q", tx)
    for name in ("new", "q"):
        for change in (
            lambda name=name: store.change_queue(queue_config(name, "orders")),
            lambda name=name: store.pause(name),
        ):
            with pytest.raises(QueueMissingError):
                change()
    store.rollback(tx).wait()
    store.pause("q").wait()


def test_a_destroyed_queue_that_a_rollback_brings_back_is_as_it_was_changed(
    node: StoreNode, store: MessageStore
) -> None:
    store.change_queue(replace(CHANGED, paused=True)).wait()
    tx = store.begin()
    store.destroy_queue("q", tx)
    store.prepare(tx).wait()
    store = node.crash()
    store.rollback(tx).wait()
    assert store.queue("q").config == replace(CHANGED, paused=True)


@BOTH
def test_a_paused_queue_takes_messages_in_and_hands_out_none(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    send(store, b"one", "q", "r")
    store.pause("q").wait()
    for _ in range(2):
        send(store, b"more", "q")
        assert store.take("q", "h") is None
        assert store.next_due() == 0
        with pytest.raises(StateError, match="queue q is paused: resume it"):
            store.acquire(next(store.browse("q")).message, "q", "h")
        store = reactivate(node)
    assert taken(store, "r") == [b"one"]
    store.resume("q").wait()
    assert taken(reactivate(node)) == [b"one", b"more", b"more"]


def test_a_holder_keeps_and_settles_what_it_has_from_a_queue_that_pauses(store: MessageStore) -> None:
    first, second = send(store, b"one", "q"), send(store, b"two", "q")
    assert len(taken(store, holder="h")) == 2
    store.pause("q").wait()
    store.acquire(first, "q", "h").wait()
    store.acknowledge(first, "q", "h").wait()
    store.release(second, "q", "h").wait()
    assert store.take("q", "h") is None
    assert store.queue("q").ready == 1


def test_a_queue_that_pauses_among_expired_messages_is_not_due(node: StoreNode, store: MessageStore) -> None:
    old = [Message("orders", b"old", expires=node.clock() + 1) for _ in range(600)]
    store.send_all(old, ["q"]).wait()
    node.clock.now_ms += 2
    assert store.take("q", "h") is None
    assert store.next_due() > 0
    store.pause("q").wait()
    store.tick()
    assert store.next_due() == 0


def test_a_queue_that_is_not_durable_changes_and_pauses(store: MessageStore) -> None:
    declare(store, "v", address="volatile", durable=False)
    send(store, b"one", "v", address="volatile")
    store.change_queue(queue_config("v", "volatile", filter="a = 1", durable=False, paused=True)).wait()
    assert (store.take("v", "h"), store.queue("v").config.filter) == (None, "a = 1")
    store.resume("v").wait()
    assert taken(store, "v") == [b"one"]


@BOTH
def test_a_purge_settles_what_is_ready_and_leaves_all_else(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    held = send(store, b"held", "q", "r")
    store.acquire(held, "q", "h").wait()
    locked, tx = send(store, b"locked", "q"), store.begin()
    store.acknowledge(locked, "q", tx=tx)
    send(store, b"later", "q", due=node.clock() + 1000)
    store.send_all([Message("orders", b"x") for _ in range(120)], ["q"])
    store.send(Message("orders", b"both"), ["q", "r"])
    store.send(Message("orders", b"volatile", durable=False), ["q"])
    store.send(Message("orders", b"old", expires=node.clock()), ["q"]).wait()
    assert store.purge("q").wait() == 123
    assert store.purge("q").wait() == 0
    assert bodies(store) == [b"held", b"locked", b"later"]
    store.rollback(tx).wait()
    store = reactivate(node)
    assert (bodies(store), bodies(store, "r")) == ([b"held", b"locked", b"later"], [b"held", b"both"])


def test_a_purge_leaves_what_arrives_or_is_taken_meanwhile(store: MessageStore) -> None:
    for _ in range(60):
        send(store, b"old", "q")
    purging = store.purging("q")
    assert purging.step()
    taken_now = store.take("q", "h")
    send(store, b"new", "q")
    assert not purging.step()
    assert (purging.wait(), bodies(store)) == (59, [b"old", b"new"])
    assert taken_now is not None


def test_a_purge_of_a_paused_queue_leaves_it_paused(store: MessageStore) -> None:
    send(store, b"x", "q")
    store.pause("q")
    assert store.purge("q").wait() == 1
    assert store.queue("q").config.paused
    with pytest.raises(QueueMissingError):
        store.purge("no")


def test_a_chain_brings_a_changed_queue_in_line_with_its_messages(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "first") as first, StoreNode(tmp_path / "second") as second:
        for node in (first, second):
            declare(node.store, "q")
        kept = second.store.queue("q").record_id
        first.store.change_queue(replace(CHANGED, paused=True)).wait()
        (done,) = realign([first.store, second.store])
        found = second.store.queue("q")
        assert (done.declared, found.config, found.record_id) == (1, replace(CHANGED, paused=True), kept)
        assert not realign([first.store, second.store])[0]
