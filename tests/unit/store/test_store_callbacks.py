"""A completion's callback runs in the thread that writes groups: nothing there may wait, and what would is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from journal.append.completion import Completion
from journal.errors import CallbackError, FullError, JournalError
from journal.limits import Limits
from journal.store.chain.chain import MessageStoreChain
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, send

CALLS: dict[str, Callable[[MessageStore | MessageStoreChain, int], object]] = {
    "send": lambda store, _: store.send(Message("orders", b"more"), ["q"]),
    "send_all": lambda store, _: store.send_all([Message("orders", b"more")], ["q"]),
    "take": lambda store, _: store.take("q", "h"),
    "acknowledge": lambda store, sent: store.acknowledge(sent, "q"),
    "release_holder": lambda store, _: store.release_holder("h"),
    "create_address": lambda store, _: store.create_address("more"),
    "commit": lambda store, _: store.commit(1),
    "message": lambda store, sent: store.message(sent),
    "body": lambda store, sent: [*store.body_stream(sent)],
    "browse": lambda store, _: store.browse("q"),
    "tick": lambda store, _: store.tick(),
    "close": lambda store, _: store.close(),
}


def told_in_a_callback(act: Callable[[], object], completion: Completion) -> JournalError | None:
    """What a completion's callback meets that does this; a test's own thread waits for it."""
    met: list[JournalError | None] = []
    done = threading.Event()

    def call(_: JournalError | None) -> None:
        try:
            act()
            met.append(None)
        except JournalError as error:
            met.append(error)
        done.set()

    completion.add_callback(call)
    assert done.wait(10), "the callback waits"
    return met[0]


@pytest.mark.parametrize("call", CALLS)
def test_a_callback_that_calls_the_store_is_refused(store: MessageStore, call: str) -> None:
    sent = send(store, b"one")
    for completion in (store.send(Message("orders", b"two"), ["q"]).completion, store.flush()):
        assert isinstance(told_in_a_callback(lambda: CALLS[call](store, sent), completion), CallbackError)
    assert next(store.browse("q")).message == sent  # nothing has changed


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"close"}))
def test_a_callback_that_calls_a_chain_is_refused(store: MessageStore, call: str) -> None:
    chain, sent = MessageStoreChain([store]), send(store, b"one")
    pending = chain.send(Message("orders", b"two"), ["q"])
    assert isinstance(told_in_a_callback(lambda: CALLS[call](chain, sent), pending.completion), CallbackError)
    chain.take("q", "h")


def test_a_callback_waits_for_no_completion_and_does_not_close_the_journal(node: StoreNode) -> None:
    with node.blocked_writer():
        first = node.journal.add(node.journal.new_id(), 0, b"")
        met: list[JournalError] = []
        for act in (lambda: node.journal.room().wait(), lambda: Completion().wait(), node.journal.close):

            def call(_: JournalError | None, act: Callable[[], object] = act) -> None:
                try:
                    act()
                except JournalError as error:
                    met.append(error)

            first.add_callback(call)
    first.wait()
    node.store.flush().wait()
    assert [type(error) for error in met] == [CallbackError, CallbackError]  # there was room
    send(node.store, b"it goes on")


def test_a_callback_is_refused_while_another_thread_is_in_the_store_and_waits_for_room(tmp_path: Path) -> None:
    """Each would wait for the other: the callback for the store, and who has that for what is written behind it."""
    limits = Limits(queue_operations_max=3, transaction_buffer_operations_max=1)
    with StoreNode(tmp_path, limits=limits, room_timeout_ms=600_000) as node:
        store = node.store
        store.create_address("orders").wait()
        store.create_queue(QueueConfig("q", "orders")).wait()
        met: list[JournalError] = []
        senders: list[threading.Thread] = []

        def call(_: JournalError | None) -> None:
            for act in (lambda: store.take("q", "h"), lambda: node.journal.add(node.journal.new_id(), 0, b"1234")):
                try:
                    act()
                except JournalError as error:
                    met.append(error)

        with node.blocked_writer():
            last = store.send(Message("orders", b"one"), ["q"])
            last.add_callback(call)
            node.journal.add(node.journal.new_id(), 0, b"")
            senders += [
                threading.Thread(target=store.send, args=(Message("orders", b"more"), ["q"]), daemon=True)
                for _ in range(9)
            ]
            for sender in senders:
                sender.start()
        last.wait(30)
        for sender in senders:
            sender.join(30)
        assert not any(sender.is_alive() for sender in senders)
        store.flush().wait(30)
        assert type(met[0]) is CallbackError
        assert all(isinstance(error, FullError) for error in met[1:])
        assert store.queue("q").ready == 10
