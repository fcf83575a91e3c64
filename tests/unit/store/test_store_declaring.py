"""Addresses, queues and bindings: made, found again, destroyed with what they hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from journal.errors import (
    AddressExistsError,
    AddressInUseError,
    AddressMissingError,
    InvalidOperationError,
    JournalError,
    QueueExistsError,
    QueueMissingError,
    StoreError,
)
from journal.limits import Limits
from journal.store.model import Message, QueueConfig, Routing
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import ADDRESS, CHUNK, MESSAGE, QUEUE
from tests.support.stores import StoreNode, bodies, declare, kinds_in_journal, refuse, send

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])


def until(condition: Callable[[], bool]) -> None:
    """What the journal's writer brings about by itself."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@BOTH
def test_addresses_queues_and_bindings_are_there_again_after_a_load(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    config = QueueConfig(
        "news/a",
        "news",
        Routing.MULTICAST,
        client_id="client",
        subscription="sub",
        filter="price > 3",
        exclusive=True,
        deliveries_max=5,
        dead_letter_address="orders",
        expiry_address="orders",
    )
    store.create_address("news", 7)
    store.create_queue(config)
    bound = store.bind("news/a", "key", "a = 1").wait()
    unbound = store.bind("news/a", "other")
    store.unbind(unbound.id).wait()
    store = reactivate(node)
    assert store.queue("news/a").config == config
    assert sorted((entry.name, entry.duplicate_window) for entry in store.addresses()) == [("news", 7), ("orders", 0)]
    assert [tuple(binding)[2:] for binding in store.bindings("news/a")] == [("key", "a = 1")]
    assert store.bindings("news/a")[0].record_id == bound
    assert sorted(info.config.name for info in store.queues()) == ["news/a", "q", "r"]


def test_a_refused_operation_changes_nothing(node: StoreNode, store: MessageStore) -> None:
    store.create_queue(QueueConfig("sub", "orders", client_id="c", subscription="s")).wait()
    before = kinds_in_journal(node), store.queues(), store.addresses()
    refused: list[tuple[Callable[[], object], type[JournalError]]] = [
        (lambda: store.create_address("orders"), AddressExistsError),
        (lambda: store.create_address(""), InvalidOperationError),
        (lambda: store.create_address("more", -1), InvalidOperationError),
        (lambda: store.destroy_address("orders"), AddressInUseError),
        (lambda: store.destroy_address("missing"), AddressMissingError),
        (lambda: store.create_queue(QueueConfig("q", "orders")), QueueExistsError),
        (lambda: store.create_queue(QueueConfig("", "orders")), InvalidOperationError),
        (lambda: store.create_queue(QueueConfig("more", "missing")), AddressMissingError),
        (
            lambda: store.create_queue(QueueConfig("sub2", "orders", client_id="c", subscription="s")),
            QueueExistsError,
        ),
        (lambda: store.destroy_queue("missing"), QueueMissingError),
        (lambda: store.bind("missing"), QueueMissingError),
        (lambda: store.unbind(1 << 40), StoreError),
        (lambda: store.bindings("missing"), QueueMissingError),
        (lambda: store.queue("missing"), QueueMissingError),
    ]
    for operation, error in refused:
        refuse(error, operation)
    assert (kinds_in_journal(node), store.queues(), store.addresses()) == before


@BOTH
def test_a_destroyed_queue_takes_its_messages_with_it(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    store.bind("q", "key")
    only, both = send(store, b"only"), send(store, b"both", "q", "r")
    assert store.take("q", "h") is not None
    store.destroy_queue("q").wait()
    assert store.holders() == []
    for message, found in ((only, False), (both, True)):
        assert bool([info for info in store.browse("r") if info.message == message]) is found
    assert kinds_in_journal(node) == {ADDRESS: 1, QUEUE: 1, MESSAGE: 1}
    store = reactivate(node)
    assert bodies(store, "r") == [b"both"]
    assert node.store.orphaned_messages == 0
    store.create_queue(QueueConfig("q", "orders")).wait()
    assert bodies(store) == []


def test_a_queue_can_be_destroyed_with_messages_on_their_way(node: StoreNode, store: MessageStore) -> None:
    with node.blocked_writer():
        sent = store.send(Message("orders", b"one"), ["q", "r"])
        store.acknowledge(send(store, b"two", "r", durable=False), "r")
        store.destroy_queue("q")
    sent.wait()
    store.acknowledge(sent.id, "r").wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_a_destroyed_queue_that_was_long_is_deleted_in_bounded_groups(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = StoreSettings(collect_operations_max=10, inline_bytes_max=100, chunk_bytes=100)
    with StoreNode(tmp_path_factory.mktemp("long") / "node", settings) as node:
        store = node.store
        declare(store, "q", "r")
        for number in range(25):
            store.send(Message("orders", b"%d" % number), ["q"])
        store.send(Message("orders", b"x" * 350), ["q"]).wait()
        store.destroy_queue("q").wait()
        until(lambda: store.collected == 30)  # without a call to the store
        kinds = kinds_in_journal(node)
        assert (kinds[MESSAGE], kinds[CHUNK]) == (0, 0)


def test_what_is_deleted_and_given_back_at_once_fits_the_journals_groups(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    limits = Limits(queue_operations_max=20, transaction_buffer_operations_max=5)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100, message_bytes_max=1000)
    with StoreNode(tmp_path_factory.mktemp("small") / "node", settings, limits=limits) as node:
        store = node.store
        declare(store, "q", "r")
        for number in range(45):
            message = store.send(Message("orders", b"%d" % number), ["q"])
            message.wait()
            store.acquire(message.id, "q", "h").wait()
        for _ in range(5):
            store.send(Message("orders", b"x" * 1000), ["q"]).wait()
        store.release_holder("h").wait()
        assert store.queue("q").held == 0
        store.destroy_queue("q").wait()
        until(lambda: store.collected == 45 + 5 * 11)
        kinds = kinds_in_journal(node)
        assert (kinds[MESSAGE], kinds[CHUNK]) == (0, 0)


def test_what_the_journal_has_no_room_for_is_deleted_once_it_has(tmp_path_factory: pytest.TempPathFactory) -> None:
    limits = Limits(queue_operations_max=20, transaction_buffer_operations_max=5)
    settings = StoreSettings(collect_operations_max=10)
    with StoreNode(tmp_path_factory.mktemp("full") / "node", settings, limits=limits) as node:
        store = node.store
        declare(store, "q", "r")
        for number in range(25):
            store.send(Message("orders", b"%d" % number), ["q"])
        store.flush().wait()
        with node.blocked_writer():
            for _ in range(6):
                store.send(Message("orders"), ["r"])
            store.destroy_queue("q")
        until(lambda: store.collected == 25)
        assert kinds_in_journal(node)[MESSAGE] == 6


def test_a_crash_amid_the_destruction_of_a_queue_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = StoreSettings(collect_operations_max=10)
    with StoreNode(tmp_path_factory.mktemp("long") / "node", settings) as node:
        declare(node.store, "q", "r")
        for number in range(25):
            node.store.send(Message("orders", b"%d" % number), ["q"])
        node.store.flush().wait()
        halfway, go_on = threading.Event(), threading.Event()
        with node.blocked_writer():
            destroyed = node.store.destroy_queue("q")
            destroyed.add_callback(lambda _: _hold(halfway, go_on))
        halfway.wait(30)
        store = node.crash()
        go_on.set()
        assert store.orphaned_messages == 15
        until(lambda: store.collected == 15)
        assert kinds_in_journal(node)[MESSAGE] == 0
        assert node.restart().orphaned_messages == 0


def _hold(entered: threading.Event, leave: threading.Event) -> None:
    entered.set()
    leave.wait(30)


def test_a_load_deletes_what_no_queue_ever_got(node: StoreNode, store: MessageStore) -> None:
    stored = store.store(Message("orders", b"one")).wait()
    store = node.crash()
    assert store.orphaned_messages == 1
    assert kinds_in_journal(node)[MESSAGE] == 0
    assert stored not in [info.message for info in store.browse("q")]
    assert node.restart().orphaned_messages == 0


def test_an_address_goes_with_what_no_queue_ever_got(node: StoreNode, store: MessageStore) -> None:
    store.create_address("empty").wait()
    store.store(Message("empty", b"durable"))
    store.store(Message("empty", b"not", durable=False))
    store.destroy_address("empty").wait()
    assert kinds_in_journal(node) == {ADDRESS: 1, QUEUE: 2}
    assert store.volatile_bytes == (0, 0)
