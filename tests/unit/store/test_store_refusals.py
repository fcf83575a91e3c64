"""What a store refuses, and what it tells of the expired: with a typed error, and in turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from journal.errors import (
    FullError,
    InvalidOperationError,
    MessageExpiredError,
    MessageMissingError,
    QueueExistsError,
    StoreError,
)
from journal.limits import Limits
from journal.store.model import Delivery, Message, QueueConfig, Routing
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK, MESSAGE
from tests.support.stores import StoreNode, declare, infos, kinds_in_journal, refuse, send


def test_expired_messages_that_cannot_be_settled_keep_no_others_from_being_told(
    node: StoreNode, store: MessageStore
) -> None:
    stuck = {send(store, b"stuck", expires=node.clock() + 1) for _ in range(7)}
    node.clock.now_ms += 1
    assert {message for message, _ in store.expired(5, agreed=False)} < stuck
    later = {send(store, b"later", "r", expires=node.clock() + 1) for _ in range(4)}
    node.clock.now_ms += 1
    for _ in range(2):
        told = [store.expired(5, agreed=False) for _ in range(3)]
        assert {message for each in told for message, _ in each} == stuck | later
    everything = store.expired(agreed=False)
    assert len(everything) == 11
    assert set(everything) == {(each, "q") for each in stuck} | {(each, "r") for each in later}


def test_a_text_where_bytes_or_names_are_needed_is_refused_in_words(store: MessageStore) -> None:
    text: Any = "text"
    for call in (store.send, store.send_all, store.store_stream):
        message: Any = [Message("orders", b"")] if call == store.send_all else Message("orders")
        bodies: Any = ([b""],) if call == store.store_stream else ()
        with pytest.raises(InvalidOperationError, match=r"queues is a list of names, not a text: \['text'\]"):
            call(message, *bodies, text)
    with pytest.raises(InvalidOperationError, match="body is bytes, not a text"):
        store.send(Message("orders", text), ["q"])
    with pytest.raises(InvalidOperationError, match="body is bytes, not a text"):
        store.send_all([Message("orders", text)], ["q"])
    with pytest.raises(InvalidOperationError, match="body is bytes, not a text"):
        store.store(Message("orders", text))


def test_more_expired_messages_than_are_looked_at_in_one_go_are_told_once_each(
    node: StoreNode, store: MessageStore
) -> None:
    sent = store.send_all([Message("orders", b"", expires=node.clock() + 1) for _ in range(700)], ["q", "r"]).wait()
    node.clock.now_ms += 1
    for _ in range(2):
        told = store.expired(agreed=False, limit=2000)
        assert len(told) == 1400
        assert set(told) == {(message, queue) for message in sent for queue in ("q", "r")}


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_what_has_expired_is_not_acquired_by_those_who_did_not_have_it(
    node: StoreNode, store: MessageStore, transacted: bool
) -> None:
    ready, scheduled, held = (send(store, b"", expires=node.clock() + 5, due=due) for due in (0, node.clock() + 5, 0))
    store.acquire(held, "q", "h").wait()
    node.clock.now_ms += 5
    tx = store.begin() if transacted else 0
    for message in (ready, scheduled):
        with pytest.raises(MessageExpiredError) as refused:
            store.acquire(message, "q", "h", tx)
        assert refused.value.message == message
    store.acquire(held, "q", "h", tx)
    store.acknowledge(held, "q", "h", tx)
    if tx:
        store.commit(tx)
    store.flush().wait()
    assert {info.message for info in infos(store)} == {ready, scheduled}


def test_what_a_transaction_acquired_in_time_is_its_holders_when_it_commits_later(
    node: StoreNode, store: MessageStore
) -> None:
    sent = send(store, b"", expires=node.clock() + 5)
    tx = store.begin()
    store.acquire(sent, "q", "h", tx)
    node.clock.now_ms += 5
    store.commit(tx).wait()
    store.flush().wait()
    assert [info.holder for info in infos(store)] == ["h"]


@pytest.mark.parametrize("which", ["dead_letter_address", "expiry_address"])
def test_a_queue_does_not_get_back_what_is_dead_or_has_expired(store: MessageStore, which: str) -> None:
    declare(store, address="other")
    tx = store.begin()
    refuse(
        InvalidOperationError,
        lambda: store.create_queue(QueueConfig("s", "orders", **{which: "orders"})),
        lambda: store.create_queue(QueueConfig("s", "orders", **{which: "orders"}), tx),
    )
    store.create_queue(QueueConfig("s", "orders", **{which: "other"})).wait()


def test_a_durable_subscription_is_its_clients_at_whatever_address(node: StoreNode, store: MessageStore) -> None:
    declare(store, address="news")
    kept = QueueConfig("s", "orders", Routing.MULTICAST, client_id="c", subscription="n")
    store.create_queue(kept).wait()
    same = QueueConfig("t", "news", Routing.MULTICAST, client_id="c", subscription="n")
    tx = store.begin()
    refuse(QueueExistsError, lambda: store.create_queue(same), lambda: store.create_queue(same, tx))
    store.create_queue(QueueConfig("u", "news", client_id="d", subscription="n")).wait()
    store = node.crash()
    refuse(QueueExistsError, lambda: store.create_queue(same))
    store.destroy_queue("s").wait()
    store.create_queue(same).wait()


def test_arguments_of_no_meaning_are_refused_with_typed_errors(store: MessageStore) -> None:
    refuse(
        InvalidOperationError,
        lambda: store.browse("q", -1),
        lambda: store.expired(-1),
        lambda: store.create_queue(QueueConfig("s", "orders", routing=1)),  # type: ignore[arg-type]
        lambda: store.create_queue(QueueConfig("s", "orders", routing="ANYCAST")),  # type: ignore[arg-type]
        lambda: store.create_queue(QueueConfig("s", "orders", deliveries_max=-1)),
        lambda: store.create_queue(QueueConfig("s", "orders", filter=5)),  # type: ignore[arg-type]
        lambda: store.send(Message(5), ["q"]),  # type: ignore[arg-type]
        lambda: store.create_address(b"name"),  # type: ignore[arg-type]
    )


# ---- messages that no queue got --------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_a_message_that_was_stored_and_never_routed_can_be_deleted(small_node: StoreNode, durable: bool) -> None:
    store = small_node.store
    small, large = (store.store(Message("orders", body, durable=durable)).wait() for body in (b"small", bytes(250)))
    for stored in (small, large):
        store.delete(stored).wait()
    for call in (store.delete, store.message, lambda stored: store.route(stored, "q")):
        refuse(MessageMissingError, partial(call, small), partial(call, large))
    kinds = kinds_in_journal(small_node)
    assert (kinds[MESSAGE], kinds[CHUNK], store.volatile_bytes) == (0, 0, (0, 0))
    assert small_node.crash().orphaned_messages == 0


def test_what_queues_have_or_transactions_store_is_not_deleted(store: MessageStore) -> None:
    tx = store.begin()
    stored_in, stored = store.store(Message("orders"), tx).id, store.store(Message("orders")).wait()
    store.route(stored, "q", tx=tx)
    sent = send(store, b"one")
    refuse(StoreError, *(lambda each=each: store.delete(each) for each in (sent, stored, stored_in)))
    store.rollback(tx).wait()
    store.delete(stored).wait()
    assert store.take("q", "h") == Delivery(sent, 0)


def test_a_delete_that_the_journal_has_no_room_for_changes_nothing(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=3, transaction_buffer_operations_max=1)
    with StoreNode(tmp_path, limits=limits, room_timeout_ms=0) as node:
        store = node.store
        store.create_address("orders").wait()
        stored = store.store(Message("orders", b"one")).wait()
        with node.blocked_writer():
            for _ in range(3):
                node.journal.add(node.journal.new_id(), 0, b"")
            refuse(FullError, lambda: store.delete(stored))
        node.journal.flush().wait()
        assert store.message(stored).body == b"one"
        store.delete(stored).wait()
