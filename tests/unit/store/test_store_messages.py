"""Messages stored once, routed, delivered in order, acknowledged, and gone with their last reference."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from journal.append.completion import Completion
from journal.errors import (
    AddressMissingError,
    ClosedError,
    FullError,
    InvalidOperationError,
    JournalError,
    MessageHeldError,
    MessageMissingError,
    QueueMissingError,
    StateError,
    StoreError,
)
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.store.model import Delivery, Message, Origin, QueueConfig, ReferenceState
from journal.store.store import MessageStore
from journal.v1.store_pb2 import ADDRESS, MESSAGE, QUEUE
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send, taken


def test_what_is_sent_comes_back_whole_and_is_gone_once_acknowledged(node: StoreNode, store: MessageStore) -> None:
    message = Message(
        "orders",
        b"body",
        headers={"type": "order"},
        properties={"n": 7, "r": 0.5, "flag": True, "raw": b"\x00"},
        priority=7,
        timestamp=123,
        expires=node.clock() + 1,
        duplicate_id=b"dup",
        origin=Origin(5, "elsewhere", "there", "moved"),
    )
    sent = store.send(message, ["q"])
    assert sent.wait() == sent.id
    assert store.message(sent.id) == message
    assert store.take("q", "h") == Delivery(sent.id, 0)
    assert store.take("q", "h") is None
    store.acknowledge(sent.id, "q", "h").wait()
    with pytest.raises(MessageMissingError):
        store.message(sent.id)
    assert kinds_in_journal(node) == {ADDRESS: 1, QUEUE: 2}


def test_a_queue_delivers_by_priority_and_then_in_order_of_acceptance(store: MessageStore) -> None:
    for number, priority in enumerate((4, 9, 0, 9, 4, 0)):
        store.send(Message("orders", b"%d" % number, priority=priority), ["q"])
    store.flush().wait()
    assert bodies(store) == [b"1", b"3", b"0", b"4", b"2", b"5"]
    assert taken(store) == [b"1", b"3", b"0", b"4", b"2", b"5"]


def test_a_message_to_many_queues_is_stored_once_and_goes_with_the_last(node: StoreNode, store: MessageStore) -> None:
    sent = send(store, b"one", "q", "r")
    assert kinds_in_journal(node)[MESSAGE] == 1
    store.acknowledge(sent, "q").wait()
    assert (bodies(store), bodies(store, "r")) == ([], [b"one"])
    assert kinds_in_journal(node)[MESSAGE] == 1
    store.acknowledge(sent, "r").wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_acknowledgements_in_one_group_see_each_other(node: StoreNode, store: MessageStore) -> None:
    sent = send(store, b"one", "q", "r")
    store.acknowledge(sent, "q")
    store.acknowledge(sent, "r").wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_a_stored_message_may_be_routed_later_and_more_than_once(node: StoreNode, store: MessageStore) -> None:
    stored = store.store(Message("orders", b"one")).wait()
    assert store.explain(stored) == []
    store.route(stored, "q").wait()
    store.route(stored, "r").wait()
    assert [info.queue for info in store.explain(stored)] == ["q", "r"]
    with pytest.raises(StoreError):
        store.route(stored, "q")
    store.acknowledge(stored, "q")
    store.acknowledge(stored, "r").wait()
    with pytest.raises(MessageMissingError):
        store.route(stored, "q")


def test_a_message_is_delivered_only_once_it_is_durable(node: StoreNode, store: MessageStore) -> None:
    pending = store.send(Message("orders", b"one"), ["q"])
    assert store.message(pending.id).body == b"one"
    pending.wait()
    assert store.take("q", "h") == Delivery(pending.id, 0)


def test_operations_can_be_awaited_and_called_back(store: MessageStore) -> None:
    told: Queue[JournalError | None] = Queue()

    async def work() -> None:
        sent = await store.send(Message("orders", b"one"), ["q"])
        delivery = store.take("q", "h")
        assert delivery == Delivery(sent, 0)
        acknowledged = store.acknowledge(sent, "q", "h")
        acknowledged.add_callback(told.put)
        assert await acknowledged == sent

    asyncio.run(work())
    assert told.get(timeout=30) is None


@pytest.mark.parametrize(
    ("message", "queues", "error"),
    [
        (Message("nowhere"), ["q"], AddressMissingError),
        (Message("nowhere"), ["missing"], AddressMissingError),
        (Message("orders"), ["missing"], QueueMissingError),
        (Message("orders"), ["other"], StoreError),
        (Message("orders"), ["q", "q"], StoreError),
        (Message("orders", priority=10), ["q"], InvalidOperationError),
        (Message("orders", expires=-1), ["q"], InvalidOperationError),
        (Message("orders", properties={"n": 2**63}), ["q"], InvalidOperationError),
    ],
)
def test_a_refused_send_changes_nothing(
    node: StoreNode, store: MessageStore, message: Message, queues: list[str], error: type[JournalError]
) -> None:
    declare(store, "other", address="others")
    before = kinds_in_journal(node), store.queues()
    with pytest.raises(error):
        store.send(message, queues)
    assert (kinds_in_journal(node), store.queues()) == before


def test_a_refused_acknowledgement_changes_nothing(store: MessageStore) -> None:
    free, held = send(store, b"free"), send(store, b"held")
    store.acquire(held, "q", "me").wait()
    before = infos(store), store.queues()
    for message, queue, holder, error in [
        (free + (1 << 40), "q", "", MessageMissingError),
        (free, "r", "", MessageMissingError),
        (free, "missing", "", QueueMissingError),
        (held, "q", "", MessageHeldError),
        (held, "q", "you", MessageHeldError),
    ]:
        with pytest.raises(error):
            store.acknowledge(message, queue, holder)
    assert (infos(store), store.queues()) == before
    store.acknowledge(free, "q")
    with pytest.raises(MessageMissingError):
        store.acknowledge(free, "q")
    store.flush().wait()
    with pytest.raises(MessageMissingError):
        store.acknowledge(free, "q")


@pytest.mark.parametrize("taken_in", [False, True], ids=["before", "after"])
def test_only_the_message_whose_acknowledgement_was_interrupted_is_delivered_to_nobody(
    node: StoreNode, store: MessageStore, monkeypatch: pytest.MonkeyPatch, taken_in: bool
) -> None:
    """Ctrl-C, before or after the journal took it: nobody can tell."""
    ready, held, other = send(store, b"ready"), send(store, b"held"), send(store, b"other")
    store.acquire(held, "q", "me").wait()
    with monkeypatch.context() as patched:

        def interrupted(*arguments: Any) -> Completion:
            if taken_in:
                LocalJournal.delete_with_update(node.journal, *arguments)
            raise KeyboardInterrupt

        patched.setattr(node.journal, "delete_with_update", interrupted)
        for message, holder in ((ready, ""), (held, "me")):
            with pytest.raises(KeyboardInterrupt):
                store.acknowledge(message, "q", holder)
    for message in (ready, held):
        with pytest.raises(MessageHeldError):
            store.acknowledge(message, "q", "me" if message == held else "")
    assert taken(store) == [b"other"]
    store.release_holder("me").wait()
    store.flush().wait()
    store = node.crash()
    left = {info.message for info in infos(store)}
    assert left == ({other} if taken_in else {ready, held, other})


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])
def test_what_cannot_be_written_is_refused_and_changes_nothing(
    node: StoreNode, store: MessageStore, durable: bool, transacted: bool
) -> None:
    due = node.clock() + 1000
    ready, held, scheduled = (
        store.send(Message("orders", durable=durable, due=at), ["q"]).wait() for at in (0, 0, due)
    )
    store.acquire(held, "q", "h").wait()
    tx = store.begin() if transacted else 0
    before = infos(store), store.queues(), store.transactions()
    for message in (ready, held, scheduled):
        for wrong in (-1, 2**31, 2**63):
            refuse(InvalidOperationError, partial(store.deliveries, message, "q", wrong, tx))
        for wrong in (-1, 2**63):
            refuse(
                InvalidOperationError,
                partial(store.schedule, message, "q", wrong, tx),
                partial(store.route, message, "r", wrong, tx),
            )
    if durable:
        refuse(
            InvalidOperationError,
            partial(store.acquire, ready, "q", "\ud800", tx),
            partial(store.acknowledge, ready, "q", "\ud800", tx),
            partial(store.take, "q", "\ud800"),
        )
    assert (infos(store), store.queues(), store.transactions()) == before
    store.deliveries(ready, "q", 2**31 - 1).wait()
    store.acknowledge(ready, "q").wait()
    node.clock.now_ms = due
    assert store.take("q", "h") == Delivery(scheduled, 0)


def test_a_refused_route_changes_nothing(store: MessageStore) -> None:
    declare(store, "other", address="others")
    sent = send(store, b"one")
    tx = store.begin()
    inside = send(store, b"inside", tx=tx)
    before = store.explain(sent), store.queues()
    for message, queue, error in [
        (sent + (1 << 40), "r", MessageMissingError),
        (inside, "r", MessageMissingError),
        (sent, "missing", QueueMissingError),
        (sent, "other", StoreError),
        (sent, "q", StoreError),
    ]:
        with pytest.raises(error):
            store.route(message, queue)
    assert (store.explain(sent), store.queues()) == before


def test_counts_follow_messages(store: MessageStore) -> None:
    for _ in range(3):
        send(store, b"x" * 100)
    assert (store.queue("q").ready, store.queue("q").held) == (3, 0)
    first = store.take("q", "h")
    assert first is not None
    assert (store.queue("q").ready, store.queue("q").held) == (2, 1)
    store.acknowledge(first.message, "q", "h").wait()
    assert (store.queue("q").ready, store.queue("q").held, store.queue("q").settling) == (2, 0, 0)
    assert 200 < store.queue("q").bytes < 300


def test_browsing_consumes_nothing_and_can_be_limited(store: MessageStore) -> None:
    sent = [send(store, b"%d" % number) for number in range(5)]
    assert [info.message for info in store.browse("q", 2)] == sent[:2]
    assert [info.state for info in store.browse("q")] == [ReferenceState.READY] * 5


def test_a_store_that_is_not_started_or_closed_refuses_everything(tmp_path: Path) -> None:
    with LocalJournal(tmp_path) as journal:
        journal.activate()
        store = MessageStore(journal)
        with pytest.raises(StateError):
            store.create_address("orders")
        with pytest.raises(StateError):
            store.queues()
    with StoreNode(tmp_path / "node") as node:
        declare(node.store, "q")
        with pytest.raises(StateError):
            node.store.start(node.loader.loaded)
        node.store.close()
        node.store.close()
        with pytest.raises(ClosedError):
            node.store.send(Message("orders"), ["q"])


def test_a_full_journal_refuses_each_operation_with_nothing_changed(tmp_path: Path) -> None:
    """A queue for one operation, which waits for nobody, and whose writer is busy with a callback."""
    limits = Limits(queue_operations_max=3, transaction_buffer_operations_max=1)
    with StoreNode(tmp_path / "node", limits=limits, room_timeout_ms=0) as node:
        store = node.store
        store.create_address("orders").wait()
        store.create_queue(QueueConfig("q", "orders", journaled_acquisition=True)).wait()
        held, ready = send(store, b"held"), send(store, b"ready")
        store.acquire(held, "q", "h").wait()
        with node.blocked_writer():
            store.send(Message("orders", b"on its way"), ["q"])
            before = infos(store), store.queues()
            refuse(
                FullError,
                lambda: store.send(Message("orders", b"refused"), ["q"]),
                lambda: store.acknowledge(ready, "q"),
                lambda: store.acknowledge(held, "q", "h"),
            )
            store.deliveries(ready, "q", 0)
            refuse(
                FullError,
                lambda: store.take("q", "you"),
                lambda: store.acquire(ready, "q", "you"),
                lambda: store.release(held, "q"),
                lambda: store.release_holder("h"),
                lambda: store.deliveries(ready, "q", 5),
                lambda: store.schedule(ready, "q", node.clock() + 9),
                lambda: store.create_address("more"),
                lambda: store.destroy_queue("q"),
                lambda: store.create_queue(QueueConfig("more", "orders")),
                lambda: store.bind("q"),
            )
            assert (infos(store), store.queues()) == before
            room = store.room()
        room.wait(30)
        store.acknowledge(ready, "q").wait()
        assert bodies(store) == [b"held", b"on its way"]


def test_a_message_without_a_timestamp_gets_the_time_at_which_it_is_sent(node: StoreNode, store: MessageStore) -> None:
    messages = [Message("orders", b"given", timestamp=5), *(Message("orders", b"%d" % number) for number in range(4))]
    ids = [store.send(messages[0], ["q"]).wait(), *store.send_all(messages[1:3], ["q"]).wait()]
    ids += [store.store(messages[3]).wait(), store.store_stream(Message("orders"), [b"long"], ["q"]).wait()]
    assert [store.message(each).timestamp for each in ids] == [5, *[node.clock()] * 4]
