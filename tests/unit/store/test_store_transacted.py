"""What transactions do to references that stay, and to addresses, queues and bindings: at commit, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from journal.errors import (
    AddressExistsError,
    AddressInUseError,
    AddressMissingError,
    InvalidOperationError,
    MessageHeldError,
    MessageMissingError,
    QueueExistsError,
    QueueInDoubtError,
    QueueMissingError,
    StoreError,
    TransactionUnknownError,
)
from journal.store.model import Message, QueueConfig, ReferenceInfo, ReferenceState
from journal.store.store import MessageStore
from journal.v1.store_pb2 import ADDRESS, BINDING, MESSAGE, QUEUE
from tests.support.references import MemoryIndex
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send, taken

Settle = Callable[[MessageStore, int], object]
SETTLE = pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
LIVES = pytest.mark.parametrize("live", ["at once", "prepared", "crash twice"], ids=lambda live: live.replace(" ", "-"))


def settle(node: StoreNode, tx: int, live: str, *, commit: bool) -> MessageStore:
    """Commit or roll back, at once, or prepared, or in a later life; then another life, which shows what is durable."""
    store = node.store
    if live != "at once":
        assert not store.prepare(tx, b"xid").not_durable
        store.flush().wait()
    for reactivate in {"crash": [node.crash], "crash twice": [node.restart, node.crash]}.get(live, []):
        store = reactivate()
        assert [info.tx for info in store.in_doubt()] == [tx]
    (store.commit if commit else store.rollback)(tx).wait()
    assert store.transactions() == []
    return store


def in_later_lives(node: StoreNode, look: Callable[[MessageStore], object]) -> object:
    """What is to be seen, the same now and after a crash."""
    seen = look(node.store)
    assert look(node.crash()) == seen
    return seen


def only(store: MessageStore, queue: str = "q") -> ReferenceInfo:
    (info,) = infos(store, queue)
    return info


def state_of(store: MessageStore) -> tuple[ReferenceState, str, int, int]:
    info = only(store)
    return info.state, info.holder, info.deliveries, info.due


# ---- references --------------------------------------------------------------------------------------------------


@SETTLE
@LIVES
def test_an_acquisition_counts_from_the_commit_on(node: StoreNode, live: str, commit: bool) -> None:
    sent = send(node.store, b"one")
    tx = node.store.begin()
    node.store.acquire(sent, "q", "h", tx)
    assert only(node.store).state is ReferenceState.LOCKED
    assert node.store.take("q", "other") is None
    settle(node, tx, live, commit=commit)
    expected = (ReferenceState.HELD, "h", 0, 0) if commit else (ReferenceState.READY, "", 0, 0)
    assert in_later_lives(node, state_of) == expected


@SETTLE
@LIVES
def test_a_release_counts_from_the_commit_on(node: StoreNode, live: str, commit: bool) -> None:
    sent = send(node.store, b"one")
    assert node.store.take("q", "h") is not None
    node.store.flush().wait()
    tx = node.store.begin()
    node.store.release(sent, "q", "h", tx)
    assert only(node.store).state is ReferenceState.LOCKED
    settle(node, tx, live, commit=commit)
    expected = (ReferenceState.READY, "", 1, 0) if commit else (ReferenceState.HELD, "h", 0, 0)
    assert in_later_lives(node, state_of) == expected


@SETTLE
@LIVES
def test_deliveries_and_due_time_count_from_the_commit_on(node: StoreNode, live: str, commit: bool) -> None:
    sent, due = send(node.store, b"one"), node.clock() + 60_000
    tx = node.store.begin()
    node.store.deliveries(sent, "q", 7, tx)
    node.store.schedule(sent, "q", due, tx)
    store = settle(node, tx, live, commit=commit)
    expected = (ReferenceState.SCHEDULED, "", 7, due) if commit else (ReferenceState.READY, "", 0, 0)
    assert in_later_lives(node, state_of) == expected
    store = node.store
    assert (store.take("q", "h") is None) is commit
    node.clock.now_ms = due
    assert (store.take("q", "h") is None) is not commit


@SETTLE
@LIVES
def test_what_a_transaction_has_acquired_it_may_acknowledge(node: StoreNode, live: str, commit: bool) -> None:
    sent = send(node.store, b"one")
    tx = node.store.begin()
    node.store.acquire(sent, "q", "h", tx)
    refuse(MessageHeldError, lambda: node.store.acknowledge(sent, "q", "other", tx))
    node.store.acknowledge(sent, "q", "h", tx)
    refuse(
        MessageHeldError,
        lambda: node.store.acknowledge(sent, "q", "h", tx),
        lambda: node.store.release(sent, "q", "h", tx),
        lambda: node.store.deliveries(sent, "q", 5),
    )
    settle(node, tx, live, commit=commit)
    assert in_later_lives(node, bodies) == ([] if commit else [b"one"])
    assert kinds_in_journal(node)[MESSAGE] == (0 if commit else 1)


@SETTLE
@LIVES
def test_a_message_can_be_acquired_and_moved_in_one_transaction(node: StoreNode, live: str, commit: bool) -> None:
    sent = send(node.store, b"one")
    tx = node.store.begin()
    node.store.acquire(sent, "q", "h", tx)
    node.store.move(sent, "q", "orders", ["r"], "why not", tx=tx)
    settle(node, tx, live, commit=commit)
    seen = in_later_lives(node, lambda store: (bodies(store), bodies(store, "r")))
    assert seen == (([], [b"one"]) if commit else ([b"one"], []))


def given_back(store: MessageStore, then: str) -> tuple[int, int]:
    """A message that a transaction has released for its holder "old", and perhaps acquired for another; and the
    transaction."""
    sent = send(store, b"one")
    store.acquire(sent, "q", "old").wait()
    tx = store.begin()
    store.release(sent, "q", "old", tx)
    if then:
        store.acquire(sent, "q", then, tx)
    return sent, tx


@SETTLE
@LIVES
@pytest.mark.parametrize("then", ["", "new"], ids=["nobodys", "anothers"])
def test_what_a_transaction_has_given_back_it_may_acknowledge(
    node: StoreNode, live: str, then: str, commit: bool
) -> None:
    """For nobody, or for whoever has acquired it since; after a rollback it is its old holder's."""
    sent, tx = given_back(node.store, then)
    if then:
        refuse(MessageHeldError, lambda: node.store.acknowledge(sent, "q", "old", tx))
    node.store.acknowledge(sent, "q", then, tx)
    refuse(MessageHeldError, lambda: node.store.acknowledge(sent, "q", then, tx))
    store = settle(node, tx, live, commit=commit)
    if not commit:
        assert store.reattach("old") == [(sent, "q")]
        assert state_of(store) == (ReferenceState.HELD, "old", 0, 0)
    assert in_later_lives(node, bodies) == ([] if commit else [b"one"])
    assert kinds_in_journal(node)[MESSAGE] == (0 if commit else 1)


@SETTLE
@pytest.mark.parametrize("then", ["", "new"], ids=["nobodys", "anothers"])
@pytest.mark.parametrize("disposes", [True, False], ids=["dead-letter", "move"])
def test_what_a_transaction_has_given_back_it_may_send_elsewhere(
    node: StoreNode, then: str, disposes: bool, commit: bool
) -> None:
    sent, tx = given_back(node.store, then)
    if disposes:
        node.store.dead_letter(sent, "q", tx=tx)
    else:
        node.store.move(sent, "q", "orders", ["r"], "why not", tx=tx)
    settle(node, tx, "at once", commit=commit)
    there = [] if disposes else [b"one"]
    seen = in_later_lives(node, lambda store: (bodies(store), bodies(store, "r")))
    assert seen == (([], there) if commit else ([b"one"], []))


def test_a_rollback_gives_what_was_acknowledged_for_another_back_to_whom_it_was_held_over_for(node: StoreNode) -> None:
    """Who may still come back for it."""
    sent = send(node.store, b"one")
    node.store.acquire(sent, "q", "old").wait()
    tx = node.store.begin()
    node.store.release(sent, "q", "old", tx)
    node.store.acquire(sent, "q", "new", tx)
    node.store.acknowledge(sent, "q", "new", tx)
    node.store.prepare(tx, b"xid").wait()
    store = node.crash()
    store.rollback(tx).wait()
    later = store.begin()
    store.release(sent, "q", "old", later)
    store.acknowledge(sent, "q", "", later)
    store.rollback(later).wait()
    store.flush().wait()
    assert state_of(store) == (ReferenceState.HELD, "old", 0, 0)
    assert store.reattach("old") == [(sent, "q")]


def test_a_transaction_sees_its_own_changes_and_others_a_locked_message(store: MessageStore) -> None:
    sent = send(store, b"one")
    tx, second = store.begin(), store.begin()
    store.acquire(sent, "q", "h", tx)
    store.release(sent, "q", "h", tx)
    refuse(MessageHeldError, lambda: store.release(sent, "q", "", tx))
    store.acquire(sent, "q", "i", tx)
    refuse(MessageHeldError, lambda: store.acquire(sent, "q", "h", tx))
    before = infos(store)
    refuse(
        MessageHeldError,
        lambda: store.acquire(sent, "q", "h"),
        lambda: store.acquire(sent, "q", "h", second),
        lambda: store.release(sent, "q"),
        lambda: store.release(sent, "q", "", second),
        lambda: store.deliveries(sent, "q", 3),
        lambda: store.deliveries(sent, "q", 3, second),
        lambda: store.schedule(sent, "q", 3),
        lambda: store.schedule(sent, "q", 3, second),
        lambda: store.acknowledge(sent, "q"),
        lambda: store.acknowledge(sent, "q", "i", second),
        lambda: store.move(sent, "q", "orders", ["r"], "why not"),
    )
    assert infos(store) == before
    assert store.transaction(tx).changes == ((sent, "q"),)
    store.commit(tx).wait()
    assert (only(store).holder, only(store).deliveries) == ("i", 1)


def test_what_cannot_be_changed_in_a_transaction_is_refused_and_nothing_is_locked(
    node: StoreNode, store: MessageStore
) -> None:
    sent, later = send(store, b"one"), send(store, b"later", "r", due=node.clock() + 1000)
    tx = store.begin()
    refuse(MessageMissingError, lambda: store.acquire(5 << 20, "q", "h", tx), lambda: store.release(sent, "r", "", tx))
    refuse(MessageHeldError, lambda: store.acquire(later, "r", "h", tx), lambda: store.release(sent, "q", "", tx))
    refuse(InvalidOperationError, lambda: store.deliveries(sent, "q", -1, tx), lambda: store.acquire(sent, "q", "", tx))
    refuse(TransactionUnknownError, lambda: store.acquire(sent, "q", "h", 99), lambda: store.schedule(sent, "q", 0, 99))
    assert store.transaction(tx).empty
    assert only(store).state is ReferenceState.READY
    assert only(store, "r").state is ReferenceState.SCHEDULED


@SETTLE
def test_a_holder_who_lets_go_meanwhile_holds_nothing_when_it_is_settled(store: MessageStore, commit: bool) -> None:
    acquired, held = send(store, b"acquired"), send(store, b"held")
    tx = store.begin()
    store.acquire(acquired, "q", "h", tx)
    store.acquire(held, "q", "h")
    store.deliveries(held, "q", 3, tx)
    store.release_holder("h")
    (store.commit if commit else store.rollback)(tx).wait()
    assert store.queue("q").held == 0
    assert [info.deliveries for info in infos(store)] == ([1, 4] if commit else [0, 1])


def test_a_holder_that_an_in_doubt_transaction_names_has_its_time_after_a_load(node: StoreNode) -> None:
    sent = send(node.store, b"one")
    tx = node.store.begin()
    node.store.acquire(sent, "q", "h", tx)
    node.store.prepare(tx, b"xid").wait()
    store = node.crash()
    node.clock.now_ms += node.settings.acquire_grace_ms
    store.tick()
    store.commit(tx).wait()
    assert taken(store) == [b"one"]


def test_what_is_not_durable_changes_too_and_prepare_says_that_it_would_not_survive(store: MessageStore) -> None:
    sent = send(store, b"one", durable=False)
    tx = store.begin()
    store.acquire(sent, "q", "h", tx)
    store.create_queue(QueueConfig("here", "orders", durable=False), tx)
    said = store.prepare(tx, b"xid").not_durable
    assert said
    assert (said.changes, said.declarations) == (((sent, "q"),), ("create queue here",))
    store.commit(tx).wait()
    assert only(store).holder == "h"
    assert store.queue("here").ready == 0


# ---- addresses, queues, bindings ---------------------------------------------------------------------------------


def declared(store: MessageStore) -> tuple[list[str], dict[str, list[str]]]:
    """Addresses, and queues with the keys of their bindings."""
    queues = {
        info.config.name: sorted(each.key for each in store.bindings(info.config.name)) for info in store.queues()
    }
    return sorted(entry.name for entry in store.addresses()), queues


@SETTLE
@LIVES
def test_what_a_transaction_creates_is_there_from_its_commit_on(node: StoreNode, live: str, commit: bool) -> None:
    store, before = node.store, declared(node.store)
    tx = store.begin()
    store.create_address("new", 2, tx)
    store.create_queue(QueueConfig("new/q", "new", client_id="c", subscription="s"), tx)
    store.create_queue(QueueConfig("third", "orders"), tx)
    store.bind("new/q", "key", "filter", tx)
    store.bind("q", "other", tx=tx)
    assert declared(store) == before
    refuse(QueueMissingError, lambda: store.send(Message("orders"), ["third"]), lambda: store.bind("third"))
    refuse(AddressMissingError, lambda: store.send(Message("new"), [], tx))
    assert len(store.transaction(tx).declarations) == 5
    store = settle(node, tx, live, commit=commit)
    after = (["new", "orders"], {"q": ["other"], "r": [], "new/q": ["key"], "third": []})
    assert in_later_lives(node, declared) == (after if commit else before)
    kinds = kinds_in_journal(node)
    assert (kinds[ADDRESS], kinds[QUEUE], kinds[BINDING]) == ((2, 4, 2) if commit else (1, 2, 0))
    if commit:
        store = node.store
        send(store, b"one", "new/q", address="new", duplicate_id=b"x")
        refuse(StoreError, lambda: store.send(Message("new", duplicate_id=b"x"), []))


@SETTLE
@LIVES
def test_what_a_transaction_destroys_is_gone_at_once_and_back_after_a_rollback(
    node: StoreNode, live: str, commit: bool
) -> None:
    store = node.store
    declare(store, address="old", window=3)
    store.create_queue(QueueConfig("old/q", "old", client_id="c", subscription="s"))
    store.bind("old/q", "key")
    gone = store.bind("r", "gone").wait()
    unrouted = store.store(Message("old", b"unrouted")).wait()
    send(store, b"in it", "old/q", address="old", duplicate_id=b"x")
    send(store, b"both", "q", "r")
    before = declared(store)
    tx = store.begin()
    store.unbind(gone, tx)
    store.destroy_queue("r", tx)
    store.destroy_queue("old/q", tx)
    store.destroy_address("old", tx)
    assert declared(store) == (["orders"], {"q": []})
    refuse(QueueMissingError, lambda: store.take("r", "h"), lambda: store.destroy_queue("r"))
    refuse(AddressMissingError, lambda: store.store(Message("old")))
    store = settle(node, tx, live, commit=commit)
    assert in_later_lives(node, declared) == ((["orders"], {"q": []}) if commit else before)
    assert in_later_lives(node, bodies) == [b"both"]
    store = node.store
    if commit:
        assert kinds_in_journal(node)[MESSAGE] == 1
        refuse(MessageMissingError, lambda: store.message(unrouted))
        return
    assert (bodies(store, "r"), bodies(store, "old/q")) == ([b"both"], [b"in it"])
    refuse(StoreError, lambda: store.send(Message("old", duplicate_id=b"x"), []))


@SETTLE
def test_a_queue_is_replaced_in_one_transaction(node: StoreNode, store: MessageStore, commit: bool) -> None:
    send(store, b"old")
    tx = store.begin()
    store.destroy_queue("q", tx)
    store.create_queue(QueueConfig("q", "orders", filter="new"), tx)
    refuse(QueueExistsError, lambda: store.create_queue(QueueConfig("q", "orders"), tx))
    refuse(QueueMissingError, lambda: store.destroy_queue("q", tx))
    store = settle(node, tx, "crash", commit=commit)
    seen = in_later_lives(node, lambda store: (store.queue("q").config.filter, bodies(store)))
    assert seen == (("new", []) if commit else ("", [b"old"]))


def test_what_one_transaction_creates_or_destroys_no_other_does(store: MessageStore) -> None:
    declare(store, address="old")
    tx, second = store.begin(), store.begin()
    bound = store.bind("q").wait()
    store.create_address("new", 0, tx)
    store.create_queue(QueueConfig("third", "orders", client_id="c", subscription="s"), tx)
    store.destroy_address("old", tx)
    store.destroy_queue("r", tx)
    store.unbind(bound, tx)
    before = declared(store)
    for other in (0, second):
        refuse(
            AddressExistsError,
            lambda other=other: store.create_address("new", 0, other),  # type: ignore[misc]
            lambda other=other: store.create_address("old", 0, other),  # type: ignore[misc]
        )
        refuse(
            QueueExistsError,
            lambda other=other: store.create_queue(QueueConfig("third", "orders"), other),  # type: ignore[misc]
            lambda other=other: store.create_queue(QueueConfig("r", "orders"), other),  # type: ignore[misc]
            lambda other=other: store.create_queue(  # type: ignore[misc]
                QueueConfig("fourth", "orders", client_id="c", subscription="s"), other
            ),
        )
        refuse(QueueInDoubtError, lambda other=other: store.destroy_queue("q", other))  # type: ignore[misc]
        refuse(StoreError, lambda other=other: store.unbind(bound, other))  # type: ignore[misc]
    store.destroy_queue("q", tx)
    refuse(AddressInUseError, lambda: store.destroy_address("orders"), lambda: store.destroy_address("orders", tx))
    assert declared(store) == (before[0], {})
    store.rollback(tx).wait()
    assert declared(store) == (["old", "orders"], {"q": [""], "r": []})
    store.create_queue(QueueConfig("third", "orders", client_id="c", subscription="s")).wait()


def test_a_queue_whose_messages_a_transaction_has_changed_is_not_destroyed(store: MessageStore) -> None:
    sent = send(store, b"one")
    tx = store.begin()
    store.acquire(sent, "q", "h", tx)
    refuse(QueueInDoubtError, lambda: store.destroy_queue("q"), lambda: store.destroy_queue("q", tx))
    store.rollback(tx).wait()
    store.destroy_queue("q").wait()


def test_a_message_of_a_queue_that_a_transaction_destroys_is_settled_elsewhere_meanwhile(
    node: StoreNode, store: MessageStore
) -> None:
    sent = send(store, b"one", "q", "r")
    tx = store.begin()
    store.destroy_queue("q", tx)
    store.acknowledge(sent, "r").wait()
    assert kinds_in_journal(node)[MESSAGE] == 1
    store.commit(tx).wait()
    assert kinds_in_journal(node)[MESSAGE] == 0
    refuse(MessageMissingError, lambda: store.message(sent))


@pytest.mark.parametrize("in_memory", [(10**6, 10**6), (8, 2)], ids=["in-memory", "paged"])
@SETTLE
def test_what_a_destroyed_queue_has_is_told_to_nobody_until_it_is_back(
    tmp_path: Path, in_memory: tuple[int, int], commit: bool
) -> None:
    """What expired in it, and what holders have: none of it could be settled, and it must not hide what could."""
    with StoreNode(tmp_path / "node", in_memory=in_memory, index=MemoryIndex) as node:
        store = node.store
        declare(store, "q", "r")
        held = send(store, b"held")
        assert store.take("q", "h") is not None
        of_q = [(send(store, b"%d" % number, expires=node.clock() + 10), "q") for number in range(5)]
        of_r = [(send(store, b"r", "r", expires=node.clock() + 20), "r")]
        tx = store.begin()
        store.destroy_queue("q", tx)
        store.prepare(tx, b"xid").wait()
        node.clock.now_ms += 100
        for _ in range(2):
            assert (store.expired(limit=5), store.reattach("h")) == (of_r, [])
            store = node.crash()
        (store.commit if commit else store.rollback)(tx).wait()
        if not commit:
            assert (sorted(store.expired()), store.reattach("h")) == ([*of_q, *of_r], [(held, "q")])
            store.acknowledge(held, "q", "h").wait()
        for message, queue in store.expired():
            store.expire(message, queue).wait()
        assert (store.expired(), store.reattach("h"), kinds_in_journal(node)[MESSAGE]) == ([], [], 0)
