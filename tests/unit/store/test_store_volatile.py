"""What is not durable: the same calls, nothing in the journal, swapped to disk when memory is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from journal.errors import FullError, LocalStorageError, MessageMissingError, QueueMissingError, StoreError
from journal.store.bodies.swap import Swap, VolatileBodies
from journal.store.model import Delivery, Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import BINDING, MESSAGE, QUEUE
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, send, taken


def test_a_message_that_is_not_durable_never_reaches_the_journal(node: StoreNode, store: MessageStore) -> None:
    before = kinds_in_journal(node)
    sent = store.send(Message("orders", b"one", durable=False), ["q", "r"])
    assert sent.done
    assert store.take("q", "h") == Delivery(sent.id, 0)
    for pending in (
        store.release(sent.id, "q"),
        store.deliveries(sent.id, "q", 4),
        store.schedule(sent.id, "r", node.clock() + 1),
        store.acquire(sent.id, "q", "h"),
        store.acknowledge(sent.id, "q", "h"),
    ):
        pending.wait()
    assert store.message(sent.id) == Message("orders", b"one", durable=False, timestamp=node.clock())
    assert kinds_in_journal(node) == before
    store = node.restart()
    assert infos(store, "r") == []
    with pytest.raises(MessageMissingError):
        store.message(sent.id)


def test_the_last_acknowledge_frees_the_memory_of_a_message_that_is_not_durable(store: MessageStore) -> None:
    sent = store.send(Message("orders", b"x" * 1000, durable=False), ["q", "r"]).id
    store.acknowledge(sent, "q")
    assert store.volatile_bytes[0] > 1000
    store.acknowledge(sent, "r")
    assert store.volatile_bytes == (0, 0)


def test_a_queue_that_is_not_durable_is_gone_with_its_node(node: StoreNode, store: MessageStore) -> None:
    before = kinds_in_journal(node)
    store.create_queue(QueueConfig("temporary", "orders", durable=False)).wait()
    binding = store.bind("temporary", "key").wait()
    store.unbind(binding)
    store.bind("temporary", "key")
    assert kinds_in_journal(node) == before
    sent = send(store, b"durable", "temporary")
    assert kinds_in_journal(node)[MESSAGE] == 1
    assert taken(store, "temporary") == [b"durable"]
    store.acknowledge(sent, "temporary", "h").wait()
    assert kinds_in_journal(node) == before
    send(store, b"durable", "temporary", "q")
    store = node.crash()
    assert bodies(store) == [b"durable"]
    with pytest.raises(QueueMissingError):
        store.queue("temporary")
    assert (kinds_in_journal(node)[QUEUE], kinds_in_journal(node)[BINDING]) == (2, 0)


def test_a_durable_message_outlives_references_that_are_not(node: StoreNode, store: MessageStore) -> None:
    store.create_queue(QueueConfig("temporary", "orders", durable=False))
    both = send(store, b"both", "temporary", "q")
    only = send(store, b"only", "temporary")
    store.acknowledge(both, "q").wait()
    assert bodies(store, "temporary") == [b"both", b"only"]
    store.destroy_queue("temporary").wait()
    assert kinds_in_journal(node)[MESSAGE] == 0
    assert only != both


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_may_have_durable_messages_and_others(
    node: StoreNode, store: MessageStore, commits: bool
) -> None:
    kept = store.send(Message("orders", b"kept", durable=False), ["q"]).id
    tx = store.begin()
    store.send(Message("orders", b"volatile", durable=False), ["q"], tx)
    send(store, b"durable", "q", tx=tx)
    store.acknowledge(kept, "q", tx=tx)
    assert store.take("q", "h") is None
    (store.commit if commits else store.rollback)(tx).wait()
    assert sorted(bodies(store)) == ([b"durable", b"volatile"] if commits else [b"kept"])
    assert bodies(node.crash()) == ([b"durable"] if commits else [])


def test_a_transaction_of_nothing_durable_is_done_at_once(node: StoreNode, store: MessageStore) -> None:
    tx = store.begin()
    store.send(Message("orders", b"volatile", durable=False), ["q"], tx)
    with node.blocked_writer():
        send_before = store.send(Message("orders", b"durable"), ["q"])
        assert store.commit(tx).done
        assert bodies(store) == [b"volatile"]
    send_before.wait()


def test_prepare_says_what_would_not_survive(node: StoreNode, store: MessageStore) -> None:
    store.create_queue(QueueConfig("temporary", "orders", durable=False))
    old = store.send(Message("orders", b"old", durable=False), ["q"]).id
    tx = store.begin()
    durable = send(store, b"durable", "q", "temporary", tx=tx)
    volatile = store.send(Message("orders", b"volatile", durable=False), ["q"], tx).id
    store.acknowledge(old, "q", tx=tx)
    prepared = store.prepare(tx, b"xid")
    prepared.wait()
    said = prepared.not_durable
    assert (said.messages, said.acknowledgements) == ((volatile,), ((old, "q"),))
    assert said.references == ((durable, "temporary"), (volatile, "q"))
    store = node.crash()
    store.commit(tx).wait()
    assert bodies(store) == [b"durable"]


def test_prepare_says_which_queues_and_bindings_would_not_survive(store: MessageStore) -> None:
    store.create_queue(QueueConfig("temporary", "orders", durable=False))
    bound = [store.bind("temporary", "key").id, store.bind("q", "key").wait()]
    tx = store.begin()
    for queue in ("temporary", "q"):
        store.bind(queue, "other", tx=tx)
    for binding in bound:
        store.unbind(binding, tx)
    store.create_queue(QueueConfig("new", "orders", durable=False), tx)
    assert store.prepare(tx, b"xid").not_durable.declarations == (
        "create queue new", "bind queue temporary", "unbind queue temporary"
    )  # fmt: skip


def test_bindings_of_a_queue_that_goes_are_not_told_beside_it(store: MessageStore) -> None:
    store.create_queue(QueueConfig("temporary", "orders", durable=False))
    binding, tx = store.bind("temporary", "key").id, store.begin()
    store.unbind(binding, tx)
    store.destroy_queue("temporary", tx)
    assert store.prepare(tx, b"xid").not_durable.declarations == ("destroy queue temporary",)


@pytest.mark.parametrize("stored_durable", [True, False])
@pytest.mark.parametrize("sent_durable", [True, False])
@pytest.mark.parametrize("transacted", [True, False])
@pytest.mark.parametrize("size", [10, 500])
def test_an_id_that_is_in_use_is_refused_and_nothing_is_changed(
    small_node: StoreNode, stored_durable: bool, sent_durable: bool, transacted: bool, size: int
) -> None:
    store = small_node.store
    store.create_address("windowed", 10)
    store.create_queue(QueueConfig("w", "windowed", journaled_acquisition=True)).wait()
    stored = Message("windowed", b"stored", durable=stored_durable)
    sent = store.send(stored, ["w"]).wait()
    before, records = store.volatile_bytes, kinds_in_journal(small_node)
    tx = store.begin() if transacted else 0
    again = Message("windowed", b"x" * size, durable=sent_durable, duplicate_id=b"again")
    for message in (again, replace(again, duplicate_id=b"")):
        with pytest.raises(StoreError, match="in use"):
            store.send(message, ["w"], tx, id=sent)
    if tx:
        store.commit(tx).wait()
    assert (store.volatile_bytes, kinds_in_journal(small_node)) == (before, records)
    assert store.message(sent) == stored
    assert store.take("w", "h") == Delivery(sent, 0)
    store.send(replace(again, durable=True), ["w"]).wait()
    store = small_node.crash()
    assert bodies(store, "w") == ([b"stored"] if stored_durable else []) + [b"x" * size]
    assert store.holders() == (["h"] if stored_durable else [])


def test_an_id_is_in_use_until_its_last_acknowledge_is_durable(small_node: StoreNode) -> None:
    store = small_node.store
    sent = send(store, b"one")
    with small_node.blocked_writer():
        acknowledged = store.acknowledge(sent, "q")
        for durable in (True, False):
            with pytest.raises(StoreError, match="in use"):
                store.send(Message("orders", b"again", durable=durable), ["q"], id=sent)
    acknowledged.wait()
    store.send(Message("orders", b"again"), ["q"], id=sent).wait()
    assert bodies(small_node.crash()) == [b"again"]


def test_a_binding_is_not_bound_again_with_its_id(store: MessageStore) -> None:
    store.create_queue(QueueConfig("temporary", "orders", durable=False))
    binding = store.bind("temporary", "first").id
    with pytest.raises(StoreError, match="in use"):
        store.bind("temporary", "second", id=binding)
    assert [each.key for each in store.bindings("temporary")] == ["first"]


# ---- swap --------------------------------------------------------------------------------------------------------


def swapping(directory: Path, **settings: int) -> StoreSettings:
    defaults = {"volatile_bytes_max": 2000, "swap_file_bytes_max": 1000, "swap_queue_bytes_max": 5000}
    return StoreSettings(swap_directory=directory / "swap", **(defaults | settings))


def swap_files(directory: Path) -> list[Path]:
    return sorted((directory / "swap").rglob("*.swap"))


def test_what_memory_does_not_hold_is_swapped_and_comes_back_in_order(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "node", swapping(tmp_path)) as node:
        store = node.store
        declare(store, "q", "r")
        for number in range(12):
            store.send(Message("orders", b"%02d" % number * 200, durable=False), ["q"] if number % 3 else ["r"])
        in_memory, swapped = store.volatile_bytes
        assert (1600 < in_memory <= 2000, swapped > 3000) == (True, True)
        assert len(swap_files(tmp_path)) > 2
        found = bodies(store), bodies(store, "r")
        assert found[0] == [b"%02d" % number * 200 for number in range(12) if number % 3]
        assert found[1] == [b"%02d" % number * 200 for number in range(0, 12, 3)]
        for queue in ("q", "r"):
            while (delivery := store.take(queue, "h")) is not None:
                store.acknowledge(delivery.message, queue, "h")
        assert store.volatile_bytes == (0, 0)
        assert swap_files(tmp_path) == []


def test_a_queues_swap_is_bounded_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "node", swapping(tmp_path)) as node:
        store = node.store
        declare(store, "q", "r")
        message = Message("orders", b"x" * 900, durable=False)
        while True:
            before = store.queues()
            try:
                store.send(message, ["q"])
            except FullError:
                break
        assert store.queues() == before
        assert store.volatile_bytes[1] <= 5000
        store.send(message, ["r"]).wait()
        store.send(Message("orders", b"durable"), ["q"]).wait()
        delivery = store.take("q", "h")
        assert delivery is not None
        store.acknowledge(delivery.message, "q", "h")
        store.send(message, ["q"]).wait()


def test_without_a_directory_memory_is_the_bound(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "node", StoreSettings(volatile_bytes_max=100)) as node:
        declare(node.store, "q")
        with pytest.raises(FullError):
            node.store.send(Message("orders", b"x" * 100, durable=False), ["q"])
        assert infos(node.store) == []


def test_swap_files_are_gone_at_close_and_those_of_a_killed_process_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "swap" / "swap-0"
    left.mkdir(parents=True)
    (left / "1-1.swap").write_bytes(b"of a process that was killed")
    with StoreNode(tmp_path / "node", swapping(tmp_path, volatile_bytes_max=0)) as node:
        assert swap_files(tmp_path) == []
        declare(node.store, "q")
        node.store.send(Message("orders", b"x", durable=False), ["q"])
        assert len(swap_files(tmp_path)) == 1
    assert swap_files(tmp_path) == []


def test_two_processes_do_not_share_swap_files(tmp_path: Path) -> None:
    first = Swap(tmp_path, file_bytes_max=10, queue_bytes_max=100)
    first.put(1, 5, b"first")
    second = Swap(tmp_path, file_bytes_max=10, queue_bytes_max=100)
    second.put(1, 5, b"other")
    assert [each.get(5) for each in (first, second)] == [b"first", b"other"]
    second.close()
    assert first.get(5) == b"first"
    first.close()


def test_a_queue_whose_first_swap_file_could_not_be_made_is_swapped_when_it_can(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "node", swapping(tmp_path, volatile_bytes_max=0)) as node:
        store = node.store
        declare(store, "q")
        (place,) = (each for each in (tmp_path / "swap").iterdir() if each.is_dir())
        place.rmdir()
        message = Message("orders", b"one", durable=False)
        for _ in range(2):
            with pytest.raises(LocalStorageError):
                store.send(message, ["q"])
        place.mkdir()
        sent = store.send(message, ["q"]).wait()
        assert bodies(store) == [b"one"]
        store.acknowledge(sent, "q")
        assert (store.volatile_bytes, swap_files(tmp_path)) == ((0, 0), [])


@contextmanager
def not_removable(file: Path) -> Iterator[None]:
    """A directory has its place meanwhile."""
    file.unlink()
    file.mkdir()
    yield
    file.rmdir()


@pytest.mark.parametrize("way", ["plain", "in-a-transaction", "with-its-queue"])
def test_what_is_consumed_is_consumed_also_where_its_swap_file_cannot_be_removed(tmp_path: Path, way: str) -> None:
    with StoreNode(tmp_path / "node", swapping(tmp_path, volatile_bytes_max=0)) as node:
        store = node.store
        declare(store, "q", "r")
        message = Message("orders", b"x" * 4500, durable=False)
        sent = store.send(message, ["q"]).wait()
        (file,) = swap_files(tmp_path)
        swapped = store.volatile_bytes[1]
        with not_removable(file):
            if way == "plain":
                store.acknowledge(sent, "q").wait()
            elif way == "in-a-transaction":
                tx = store.begin()
                store.acknowledge(sent, "q", tx=tx)
                store.commit(tx).wait()
            else:
                store.destroy_queue("q").wait()
            assert [(info.locked, info.settling) for info in store.queues()] == [(0, 0)] * len(store.queues())
            with pytest.raises(MessageMissingError):
                store.message(sent)
            assert store.volatile_bytes[1] == swapped
            if way != "with-its-queue":
                with pytest.raises(FullError):
                    store.send(message, ["q"])
        again = store.send(message, ["r" if way == "with-its-queue" else "q"]).wait()
        assert len(swap_files(tmp_path)) == 1
        assert not file.exists()
        assert store.volatile_bytes[1] == swapped
        assert store.message(again).body == message.body


def test_a_swap_file_that_was_damaged_is_told(tmp_path: Path) -> None:
    bodies = VolatileBodies(0, Swap(tmp_path, file_bytes_max=100, queue_bytes_max=100))
    bodies.put(1, 5, b"first")
    (file,) = tmp_path.rglob("*.swap")
    file.write_bytes(b"fir")
    with pytest.raises(LocalStorageError):
        bodies.get(5)
    file.unlink()
    with pytest.raises(LocalStorageError):
        bodies.get(5)
    assert (5 in bodies, 6 in bodies, bodies.get(6)) == (True, False, None)
    bodies.close()
