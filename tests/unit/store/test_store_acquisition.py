"""Who holds a message is known in memory only, unless its queue journals acquisitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.errors import MessageHeldError
from journal.store.model import Delivery, Held, Message
from journal.v1.store_pb2 import ACKNOWLEDGE, MESSAGE, REFERENCE, Acknowledgement
from tests.support.stores import StoreNode, declare, infos, kinds_in_journal, send, updates_in_journal


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node") as running:
        declare(running.store, "q", "r", journaled_acquisition=False)
        yield running


def test_to_take_and_to_give_back_uncounted_writes_nothing(node: StoreNode) -> None:
    sent = send(node.store, b"one")
    assert node.store.take("q", "h") == Delivery(sent, 0)
    assert node.store.release(sent, "q", "h", counts=False).done
    assert node.store.acquire(sent, "q", "h").done
    assert updates_in_journal(node, REFERENCE) == []


def test_after_a_crash_what_was_held_is_ready_and_possibly_redelivered(node: StoreNode) -> None:
    sent = send(node.store, b"one")
    node.store.take("q", "h")
    store = node.crash()
    assert (store.holders(), store.reattach("h"), store.next_due()) == ([], [], 0)
    later = send(store, b"two")
    assert store.take("q", "other") == Delivery(sent, 0, redelivered=True)
    assert store.take("q", "other") == Delivery(later, 0)


def test_a_counted_give_back_is_there_after_every_crash(node: StoreNode) -> None:
    sent = send(node.store, b"one")
    for count in range(3):
        assert node.store.take("q", "h") == Delivery(sent, count, redelivered=count > 0)
        node.store.release(sent, "q", "h").wait()
        node.crash()
    node.store.take("q", "h")
    node.store.release_holder("h").wait()
    assert node.crash().take("q", "h") == Delivery(sent, 4, redelivered=True)


def test_what_a_transaction_acknowledges_is_nobody_elses_until_it_is_rolled_back(node: StoreNode) -> None:
    sent = send(node.store, b"one")
    node.store.take("q", "h")
    tx = node.store.begin()
    node.store.acknowledge(sent, "q", "h", tx)
    node.store.prepare(tx, b"xid").wait()
    store = node.crash()
    assert store.take("q", "other") is None
    with pytest.raises(MessageHeldError):
        store.acquire(sent, "q", "other")
    store.rollback(tx).wait()
    assert store.take("q", "other") == Delivery(sent, 0, redelivered=True)


def test_an_acknowledgement_says_when_the_message_was_first_delivered_and_how_often_it_came_back(
    node: StoreNode,
) -> None:
    store, clock = node.store, node.clock
    sent = [send(store, b"%d" % number, "q", "r") for number in range(8)]
    begun_ms = clock()
    first = store.take("q", "h")
    assert first is not None
    store.release(first.message, "q", "h").wait()
    clock.now_ms += 5
    for message in sent:
        store.acquire(message, "q", "h")
    store.acknowledge_all([Held("q", sent[:7], "h")]).wait()
    tx = store.begin()
    store.acknowledge(sent[7], "q", "h", tx)
    store.commit(tx).wait()
    told = [Acknowledgement.FromString(data) for data in updates_in_journal(node, ACKNOWLEDGE)]
    times = [(each.delivered, each.deliveries) for each in told]
    assert times == [(begun_ms, 1), *[(begun_ms + 5, 0)] * 7]


def test_an_acknowledgement_does_not_know_what_was_before_a_load(node: StoreNode) -> None:
    sent = send(node.store, b"one", "q", "r")
    store = node.crash()
    store.take("q", "h")
    store.acknowledge(sent, "q", "h").wait()
    (data,) = updates_in_journal(node, ACKNOWLEDGE)
    assert Acknowledgement.FromString(data).delivered == 0


# ---- many at once ------------------------------------------------------------------------------------------------


def test_messages_are_taken_together_with_their_bodies(node: StoreNode) -> None:
    store = node.store
    sent = [send(store, b"%d" % number, properties={"number": number}) for number in range(5)]
    sent.append(send(store, b"volatile", durable=False))
    taken = store.take_all("q", "h", 4)
    assert [(each.message, each.deliveries) for each in taken] == [(message, 0) for message in sent[:4]]
    store.release(sent[0], "q", "h").wait()
    first, *rest = store.take_all("q", "h", 9)
    assert (first.message, first.deliveries, first.redelivered) == (sent[0], 1, True)
    assert [each.message for each in rest] == sent[4:]
    read = store.bodies(sent).wait()
    for each in (*taken[1:], first, *rest):
        assert each.content in (None, read[each.message])
    assert [read[message].body for message in sent] == [b"0", b"1", b"2", b"3", b"4", b"volatile"]
    assert rest[-1].content == read[sent[-1]]
    assert store.take_all("q", "h", 9) == []


def test_an_event_loop_awaits_bodies_and_what_is_gone_is_left_out(node: StoreNode) -> None:
    store = node.store
    sent = [send(store, b"%d" % number) for number in range(3)]
    store.acknowledge(sent[1], "q").wait()

    async def read() -> dict[int, Message]:
        return await store.bodies(sent)

    assert {message: each.body for message, each in asyncio.run(read()).items()} == {sent[0]: b"0", sent[2]: b"2"}


def test_the_body_of_a_large_message_is_left_to_a_stream(small_node: StoreNode) -> None:
    store = small_node.store
    sent = send(store, b"x" * 250)
    (taken,) = store.take_all("q", "h", 2)
    assert (taken.message, taken.large) == (sent, True)
    assert store.bodies([sent]).wait()[sent].body == b""
    assert b"".join(store.body_stream(sent)) == b"x" * 250


def test_one_call_acknowledges_over_queues_and_holders(node: StoreNode) -> None:
    store = node.store
    both = [send(store, b"both", "q", "r") for _ in range(6)]
    one = send(store, b"one", "r")
    for message in both:
        store.acquire(message, "q", "h")
    store.acquire(one, "r", "i")
    with pytest.raises(MessageHeldError):
        store.acknowledge_all([Held("q", both, "h"), Held("r", [*both, one], "h")])
    assert len(infos(store)) == 6
    settled = store.acknowledge_all([Held("q", both, "h"), Held("r", both), Held("r", [one], "i")])
    assert settled.wait() == (*both, *both, one)
    assert (infos(store), infos(store, "r"), kinds_in_journal(node)[MESSAGE]) == ([], [], 0)
