"""Transactions over a store: all or nothing, last references at commit, in doubt across activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from journal.errors import (
    AddressInUseError,
    DuplicateMessageError,
    FullError,
    MessageHeldError,
    MessageMissingError,
    QueueInDoubtError,
    RolledBackError,
    StateError,
    TransactionPreparedError,
    TransactionUnknownError,
)
from journal.limits import Limits
from journal.store.model import Message, QueueConfig, ReferenceState
from journal.store.store import MessageStore
from journal.v1.journal_pb2 import ADD
from journal.v1.store_pb2 import MESSAGE, OUTCOME
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send, taken

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])


def test_what_a_transaction_adds_is_visible_once_it_is_committed(store: MessageStore) -> None:
    tx = store.begin()
    send(store, b"one", tx=tx)
    send(store, b"two", "q", "r", tx=tx)
    store.flush().wait()
    assert store.take("q", "h") is None
    store.commit(tx).wait()
    assert (bodies(store), bodies(store, "r")) == ([b"one", b"two"], [b"two"])
    with pytest.raises(TransactionUnknownError):
        store.commit(tx)


def test_a_transaction_is_empty_until_something_is_done_in_it(store: MessageStore) -> None:
    there = send(store, b"there")
    with pytest.raises(TransactionUnknownError):
        store.is_empty(1)
    work: list[Callable[[int], object]] = [
        lambda tx: send(store, b"one", tx=tx),
        lambda tx: store.send(Message("orders", b"volatile", durable=False), ["q"], tx),
        lambda tx: store.acknowledge(there, "q", tx=tx),
        lambda tx: store.deliveries(there, "q", 2, tx),
        lambda tx: store.create_queue(QueueConfig("new", "orders"), tx),
    ]
    for do in work:
        tx = store.begin()
        assert store.is_empty(tx)
        do(tx)
        assert not store.is_empty(tx)
        store.rollback(tx).wait()


def test_messages_of_a_transaction_stand_where_its_commit_stands(node: StoreNode, store: MessageStore) -> None:
    tx = store.begin()
    send(store, b"second", tx=tx)
    send(store, b"first")
    store.commit(tx).wait()
    assert bodies(store) == [b"first", b"second"]
    assert bodies(node.crash()) == [b"first", b"second"]


def test_a_rollback_leaves_everything_as_it_was(node: StoreNode, store: MessageStore) -> None:
    kept = send(store, b"kept")
    send(store, b"next")
    before = infos(store), kinds_in_journal(node)
    tx = store.begin()
    pending = store.send(Message("orders", b"gone"), ["q"], tx)
    store.acknowledge(kept, "q", tx=tx)
    assert infos(store)[0].state is ReferenceState.LOCKED
    store.rollback(tx).wait()
    with pytest.raises(RolledBackError):
        pending.wait()
    with pytest.raises(MessageMissingError):
        store.message(pending.id)
    assert (infos(store), kinds_in_journal(node)) == before
    assert taken(store) == [b"kept", b"next"]


def test_what_a_transaction_has_acknowledged_nobody_else_gets(store: MessageStore) -> None:
    sent = send(store, b"one")
    tx = store.begin()
    store.acknowledge(sent, "q", tx=tx)
    before = infos(store)
    assert store.take("q", "h") is None
    refuse(
        MessageHeldError,
        lambda: store.acknowledge(sent, "q"),
        lambda: store.acknowledge(sent, "q", tx=tx),
        lambda: store.acquire(sent, "q", "h"),
        lambda: store.release(sent, "q"),
        lambda: store.schedule(sent, "q", 0),
        lambda: store.move(sent, "q", "orders", ["r"], "why not"),
        lambda: store.expire(sent, "q"),
    )
    assert infos(store) == before
    store.commit(tx).wait()
    assert infos(store) == []


def test_a_held_message_is_acknowledged_in_a_transaction_and_given_back_to_its_holder(store: MessageStore) -> None:
    sent = send(store, b"one")
    assert store.take("q", "h") is not None
    tx = store.begin()
    with pytest.raises(MessageHeldError):
        store.acknowledge(sent, "q", "other", tx)
    store.acknowledge(sent, "q", "h", tx)
    store.rollback(tx).wait()
    (info,) = infos(store)
    assert (info.state, info.holder) == (ReferenceState.HELD, "h")


def test_the_commit_that_settles_the_last_reference_deletes_the_message(node: StoreNode, store: MessageStore) -> None:
    sent = send(store, b"one", "q", "r")
    first, second = store.begin(), store.begin()
    store.acknowledge(sent, "q", tx=first)
    store.acknowledge(sent, "r", tx=second)
    store.commit(first).wait()
    assert kinds_in_journal(node)[MESSAGE] == 1
    store.commit(second).wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_a_rollback_keeps_the_message_for_the_reference_it_gives_back(node: StoreNode, store: MessageStore) -> None:
    sent = send(store, b"one", "q", "r")
    tx = store.begin()
    store.acknowledge(sent, "q", tx=tx)
    store.acknowledge(sent, "r").wait()
    assert kinds_in_journal(node)[MESSAGE] == 1
    store.rollback(tx).wait()
    assert bodies(store) == [b"one"]
    store.acknowledge(sent, "q").wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_one_transaction_may_settle_all_references(node: StoreNode, store: MessageStore) -> None:
    sent = send(store, b"one", "q", "r")
    tx = store.begin()
    store.acknowledge(sent, "q", tx=tx)
    store.acknowledge(sent, "r", tx=tx)
    store.commit(tx).wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_a_route_in_a_transaction_counts_as_a_reference(node: StoreNode, store: MessageStore) -> None:
    sent = send(store, b"one")
    committed, rolled_back = store.begin(), store.begin()
    store.route(sent, "r", tx=committed)
    store.acknowledge(sent, "q").wait()
    assert kinds_in_journal(node)[MESSAGE] == 1
    store.commit(committed).wait()
    assert bodies(store, "r") == [b"one"]
    store.create_queue(QueueConfig("third", "orders")).wait()
    store.route(sent, "third", tx=rolled_back)
    store.acknowledge(sent, "r").wait()
    store.rollback(rolled_back).wait()
    assert kinds_in_journal(node)[MESSAGE] == 0
    with pytest.raises(MessageMissingError):
        store.message(sent)


def test_a_stored_message_stays_when_its_only_route_is_rolled_back(store: MessageStore) -> None:
    stored = store.store(Message("orders", b"one")).wait()
    tx = store.begin()
    store.route(stored, "q", tx=tx)
    store.rollback(tx).wait()
    store.route(stored, "q").wait()
    assert bodies(store) == [b"one"]


@BOTH
def test_an_open_transaction_is_gone_with_its_node(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    kept = send(store, b"kept")
    tx = store.begin()
    send(store, b"gone", tx=tx)
    store.acknowledge(kept, "q", tx=tx)
    store.flush().wait()
    store = reactivate(node)
    assert taken(store) == [b"kept"]
    assert store.transactions() == []
    with pytest.raises(TransactionUnknownError):
        store.rollback(tx)


@BOTH
@pytest.mark.parametrize("settle", [MessageStore.commit, MessageStore.rollback], ids=["commit", "rollback"])
@pytest.mark.parametrize("times", [0, 2])
def test_what_is_in_doubt_stays_so_until_it_is_settled(
    node: StoreNode, store: MessageStore, reactivate: Reactivate, settle: Callable[..., object], times: int
) -> None:
    declare(store, "window/q", address="window", window=3)
    kept, both = send(store, b"kept"), send(store, b"both", "q", "r")
    assert store.take("q", "h") is not None
    tx = store.begin()
    added = store.send(Message("window", b"added", duplicate_id=b"dup"), ["window/q"], tx).id
    store.route(kept, "r", tx=tx)
    store.acknowledge(kept, "q", "h", tx)
    store.acknowledge(both, "q", tx=tx)
    store.acknowledge(both, "r", tx=tx)
    assert not store.prepare(tx, b"xid").not_durable
    store.flush().wait()
    for _ in range(times):
        store = reactivate(node)
    (info,) = store.in_doubt()
    assert (info.tx, info.data, info.prepared) == (tx, b"xid", True)
    assert info.messages == (added,)
    assert sorted(info.references) == sorted([(added, "window/q"), (kept, "r")])
    assert sorted(info.acknowledgements) == sorted([(kept, "q"), (both, "q"), (both, "r")])
    assert [store.take(queue, "you") for queue in ("q", "r", "window/q")] == [None] * 3
    assert {reference.state for reference in store.explain(kept)} == {ReferenceState.LOCKED}
    assert {reference.tx for reference in store.explain(both)} == {tx}
    for queue in ("q", "r", "window/q"):
        with pytest.raises(QueueInDoubtError):
            store.destroy_queue(queue)
    with pytest.raises(DuplicateMessageError):
        store.send(Message("window", duplicate_id=b"dup"), [])
    with pytest.raises(MessageMissingError):
        store.route(added, "q")
    if settle is MessageStore.commit:
        store.commit(tx).wait()
        assert (bodies(store), bodies(store, "r"), bodies(store, "window/q")) == ([], [b"kept"], [b"added"])
        with pytest.raises(DuplicateMessageError):
            store.send(Message("window", duplicate_id=b"dup"), [])
        assert kinds_in_journal(node)[MESSAGE] == 2
    else:
        store.rollback(tx).wait()
        assert (bodies(store), bodies(store, "r"), bodies(store, "window/q")) == ([b"kept", b"both"], [b"both"], [])
        first = infos(store)[0]
        assert (first.state, first.holder) == (ReferenceState.HELD, "h")
        store.send(Message("window", duplicate_id=b"dup"), []).wait()
    assert store.in_doubt() == []
    store = reactivate(node)
    assert store.in_doubt() == []
    assert bodies(store) == ([] if settle is MessageStore.commit else [b"kept", b"both"])


def test_a_prepared_transaction_takes_no_more(store: MessageStore) -> None:
    tx = store.begin()
    sent = send(store, b"one")
    store.prepare(tx, b"xid")
    refuse(
        TransactionPreparedError,
        lambda: store.prepare(tx, b"again"),
        lambda: store.send(Message("orders"), ["q"], tx),
        lambda: store.acknowledge(sent, "q", tx=tx),
        lambda: store.route(sent, "r", tx=tx),
    )
    store.rollback(tx).wait()


def test_a_send_that_a_transaction_has_no_room_for_is_refused_whole_and_the_transaction_goes_on(tmp_path: Path) -> None:
    limits = Limits(staged_operations_max=4, transaction_buffer_operations_max=2)
    with StoreNode(tmp_path / "node", limits=limits) as node:
        store = node.store
        declare(store, "q", "r", "s")
        tx = store.begin()
        send(store, b"first", tx=tx)
        with pytest.raises(FullError, match="staged_operations_max"):
            send(store, b"refused", "q", "r", tx=tx)
        send(store, b"second", tx=tx)
        store.commit(tx).wait()
        assert (bodies(store), bodies(store, "r")) == ([b"first", b"second"], [])


def test_an_unknown_transaction_is_refused_everywhere(store: MessageStore) -> None:
    sent = send(store, b"one")
    before = infos(store)
    refuse(
        TransactionUnknownError,
        lambda: store.prepare(99),
        lambda: store.commit(99),
        lambda: store.rollback(99),
        lambda: store.transaction(99),
        lambda: store.send(Message("orders"), ["q"], 99),
        lambda: store.acknowledge(sent, "q", tx=99),
        lambda: store.route(sent, "r", tx=99),
    )
    assert infos(store) == before
    assert store.transactions() == []


def test_operations_behind_a_commit_are_in_its_group(node: StoreNode, store: MessageStore) -> None:
    tx = store.begin()
    send(store, b"one", tx=tx)
    store.prepare(tx, b"xid")
    store.commit(tx, then=[(ADD, node.journal.new_id(), OUTCOME, b"decided", False, 0)]).wait()
    store = node.crash()
    assert bodies(store) == [b"one"]
    assert [outcome.data for outcome in node.loader.loaded.outcomes] == [b"decided"]


def test_a_queue_or_address_that_a_transaction_uses_is_not_destroyed(store: MessageStore) -> None:
    declare(store, address="empty")
    tx = store.begin()
    send(store, b"one", "r", tx=tx)
    store.store(Message("empty"), tx)
    with pytest.raises(QueueInDoubtError):
        store.destroy_queue("r")
    with pytest.raises(AddressInUseError):
        store.destroy_address("empty")
    store.rollback(tx)
    store.destroy_queue("r").wait()
    store.destroy_address("empty").wait()


def test_a_number_is_free_once_the_rollback_of_what_was_prepared_with_it_is_durable(node: StoreNode) -> None:
    store = node.store
    tx = store.begin(77)
    store.create_address("never", 1, tx)
    store.prepare(tx).wait()
    with node.blocked_writer():
        store.rollback(tx)
        with pytest.raises(StateError):
            store.begin(77)
        assert store.transactions() == []
    store.flush().wait()
    tx = store.begin(77)
    store.create_address("never", 1, tx)
    store.commit(tx)
    assert store.begin(77) == 77  # a commit leaves nothing to be undone
    store.flush().wait()
    assert {entry.name for entry in store.addresses()} == {"orders", "never"}


@pytest.mark.parametrize("durable", [True, False])
def test_what_a_rollback_on_its_way_takes_back_is_nobody_elses_yet(node: StoreNode, durable: bool) -> None:
    store = node.store
    declare(store, address="empty")
    tx = store.begin()
    alone = store.store(Message("empty", durable=durable), tx).id
    stored = store.store(Message("orders", b"never", durable=durable), tx).id
    store.prepare(tx).wait()
    with node.blocked_writer():
        store.rollback(tx)
        with pytest.raises(AddressInUseError):
            store.destroy_address("empty")
        with pytest.raises(MessageMissingError):
            store.route(stored, "q")
        sent = store.send(Message("orders", b"behind"), ["q"])
    sent.wait()
    assert bodies(store) == [b"behind"]
    refuse(MessageMissingError, *(partial(store.message, message) for message in (alone, stored)))
    store.destroy_address("empty").wait()
    assert kinds_in_journal(node)[MESSAGE] == 1


def test_the_body_of_a_transaction_that_is_staged_can_be_read_once_it_is_committed(node: StoreNode) -> None:
    store = node.store
    tx = store.begin()
    body = b"x" * 200_000
    sent = [store.send(Message("orders", body), ["q"], tx).id for _ in range(30)]
    store.commit(tx).wait()
    assert all(store.message(message).body == body for message in sent)
