"""A message that was delivered in vain as often as allowed is handed out no more, and goes where dead letters go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from journal.errors import LocalDamageError, StoreError
from journal.store.address_settings import AddressSettings
from journal.store.disposal import Disposal
from journal.store.message_records import encode_message
from journal.store.model import Held, Message, Origin, QueueConfig
from journal.store.operations.dead_letters import DEAD_LETTERS, SET_ASIDE_MAX
from journal.store.pending import Moved
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import MESSAGE
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send

GivenBack = Callable[[MessageStore, int], object]


def twice(store: MessageStore, **settings: object) -> None:
    store.set_address_settings("#", AddressSettings.model_validate({"deliveries_max": 2, **settings})).wait()


def deliver_in_vain(store: MessageStore, queue: str = "q", times: int = 2) -> int:
    """Returns the message."""
    for _ in range(times):
        taken = store.take(queue, "h")
        assert taken is not None
        store.release(taken.message, queue, "h").wait()
    return taken.message


def settle(store: MessageStore) -> int:
    """Returns the number of settled messages."""
    settled = Disposal(store).settle()
    store.flush().wait()
    return settled


def _commit_a_release(store: MessageStore, message: int) -> None:
    tx = store.begin()
    store.release(message, "q", "h", tx)
    store.commit(tx).wait()


def _roll_back_an_acknowledgement(store: MessageStore, message: int) -> None:
    tx = store.begin()
    store.acknowledge(message, "q", "h", tx)
    store.rollback(tx, release=True).wait()


@pytest.mark.parametrize(
    "given_back",
    [
        lambda store, message: store.release(message, "q", "h").wait(),
        lambda store, message: store.release_all([Held("q", [message], "h")]).wait(),
        lambda store, _: store.release_holder("h").wait(),
        _commit_a_release,
        _roll_back_an_acknowledgement,
    ],
)
def test_whoever_gives_it_back_it_is_dead_after_the_last_delivery(store: MessageStore, given_back: GivenBack) -> None:
    twice(store)
    sent, other = send(store, b"dead", "q"), send(store, b"good", "q")
    for _ in range(2):
        assert store.dead() == []
        assert [each.message for each in store.take_all("q", "h", 1)] == [sent]
        given_back(store, sent)
    assert store.dead() == [(sent, "q")]
    assert [each.message for each in store.take_all("q", "h", 5)] == [other]
    assert [(info.message, info.holder) for info in infos(store)] == [(sent, DEAD_LETTERS), (other, "h")]
    assert (settle(store), store.dead(), settle(store)) == (1, [], 0)
    assert bodies(store, "DLQ.orders") == [b"dead"]


def test_what_is_not_counted_makes_nothing_dead(store: MessageStore) -> None:
    twice(store)
    sent = send(store, b"one", "q")
    for _ in range(3):
        assert store.take("q", "h") is not None
        store.release(sent, "q", "h", counts=False).wait()
    assert store.dead() == []


def test_a_dead_letter_names_its_origin_and_survives_a_failover(node: StoreNode, store: MessageStore) -> None:
    twice(store)
    sent = store.send(Message("orders", b"one", expires=node.clock() + 9), ["q"]).wait()
    deliver_in_vain(store)
    store = node.crash()
    assert (store.dead(), store.take("q", "h"), store.dead()) == ([], None, [(sent, "q")])
    settle(store)
    store = node.crash()
    ((dead,),) = ([info.message for info in store.browse("DLQ.orders")],)
    found = store.message(dead)
    assert found.origin == Origin(sent, "orders", "q", "dead", node.clock() + 9)
    assert (found.address, found.expires, kinds_in_journal(node)[MESSAGE]) == ("DLQ.orders", 0, 1)


def test_a_queue_s_own_limit_and_address_win(store: MessageStore) -> None:
    twice(store, dead_letter_address="dead")
    store.create_queue(QueueConfig("s", "orders", deliveries_max=1, dead_letter_address="own")).wait()
    for queue, times in (("q", 2), ("s", 1)):
        send(store, queue.encode(), queue)
        deliver_in_vain(store, queue, times)
    settle(store)
    assert (bodies(store, "dead"), bodies(store, "own")) == ([b"q"], [b"s"])


def test_a_dead_message_is_deleted_only_if_the_settings_say_so(node: StoreNode, store: MessageStore) -> None:
    twice(store, drop_dead_letters=True)
    send(store, b"one", "q")
    deliver_in_vain(store)
    assert settle(store) == 1
    assert (infos(store), kinds_in_journal(node)[MESSAGE]) == ([], 0)


def test_a_dead_letter_stays_in_its_queue_however_often_it_is_delivered(store: MessageStore) -> None:
    twice(store)
    send(store, b"one", "q")
    deliver_in_vain(store)
    settle(store)
    dead = deliver_in_vain(store, "DLQ.orders", 5)
    assert store.dead() == []
    refuse(StoreError, lambda: store.dead_letter(dead, "DLQ.orders"))
    store.set_address_settings("DLQ.#", AddressSettings(dead_letter_address="end")).wait()
    assert (store.take("DLQ.orders", "h"), store.dead()) == (None, [(dead, "DLQ.orders")])
    settle(store)
    assert bodies(store, "end") == [b"one"]


def test_what_is_at_an_address_for_dead_letters_is_not_deleted_by_a_later_setting(store: MessageStore) -> None:
    twice(store)
    send(store, b"one", "q")
    deliver_in_vain(store)
    settle(store)
    twice(store, drop_dead_letters=True)
    deliver_in_vain(store, "DLQ.orders", 3)
    assert (store.dead(), bodies(store, "DLQ.orders")) == ([], [b"one"])


def test_a_dead_message_is_ready_again_when_no_limit_holds_for_it_any_more(store: MessageStore) -> None:
    twice(store)
    sent = send(store, b"one", "q")
    deliver_in_vain(store)
    assert store.dead() == [(sent, "q")]
    twice(store, deliveries_max=3)
    assert (store.dead(), deliver_in_vain(store, times=1), store.dead()) == ([], sent, [(sent, "q")])


def test_a_limit_that_is_lowered_holds_for_what_waits(store: MessageStore) -> None:
    sent = [send(store, b"%d" % number, "q") for number in range(3)]
    for message in sent[:2]:
        store.deliveries(message, "q", 5).wait()
    store.change_queue(replace(store.queue("q").config, deliveries_max=5)).wait()
    taken = store.take("q", "h")
    assert taken is not None
    assert (taken.message, store.dead(1), store.dead(1)) == (sent[2], [(sent[0], "q")], [(sent[1], "q")])


def test_more_dead_messages_than_one_take_sets_aside_are_told_to_who_watches(store: MessageStore) -> None:
    woken: list[None] = []
    store.watch(lambda: woken.append(None))
    sent = store.send_all([Message("orders", b"%d" % number) for number in range(SET_ASIDE_MAX + 1)], ["q"])
    sent.wait()
    for message in sent.ids[:-1]:
        store.deliveries(message, "q", 2)
    twice(store)
    store.woken()
    woken.clear()
    assert (store.take("q", "h"), len(store.dead()), store.woken()) == (None, SET_ASIDE_MAX, ["q"])
    assert [each.message for each in store.take_all("q", "h", 5)] == [sent.ids[-1]]


def test_what_becomes_of_a_dead_message_meanwhile_is_no_fault(store: MessageStore) -> None:
    twice(store)
    store.create_queue(QueueConfig("s", "orders")).wait()
    for queue in ("q", "s"):
        send(store, queue.encode(), queue)
        deliver_in_vain(store, queue)
    freed = send(store, b"freed", "r")
    deliver_in_vain(store, "r")
    store.release_holder(DEAD_LETTERS, counts=False).wait()
    assert [store.take(queue, "h") for queue in ("q", "r", "s")] == [None] * 3
    dead = {queue: message for message, queue in store.dead()}
    assert {*dead} == {"q", "r", "s"}
    store.destroy_queue("s").wait()
    store.acknowledge(dead["q"], "q", DEAD_LETTERS).wait()
    assert store.dead() == [(freed, "r")]


def test_a_large_dead_message_moves_whole(tmp_path: Path) -> None:
    settings = StoreSettings(
        inline_bytes_max=100, chunk_bytes=100, address_settings={"orders": AddressSettings(deliveries_max=2)}
    )
    with StoreNode(tmp_path, settings) as node:
        declare(node.store, "q")
        send(node.store, bytes(1000), "q")
        deliver_in_vain(node.store)
        settle(node.store)
        assert bodies(node.store, "DLQ.orders") == [bytes(1000)]


def test_a_dead_message_too_large_for_an_origin_stays_and_others_go(node: StoreNode, store: MessageStore) -> None:
    twice(store, deliveries_max=1)
    room = node.journal.limits.data_bytes_max
    small = encode_message(Message("orders", b"", properties={"text": "x" * (room // 2)}))
    text = "x" * (room // 2 + room - len(small) - 8)
    large = store.send(Message("orders", b"", properties={"text": text}), ["q"]).wait()
    send(store, b"small", "q")
    store.take_all("q", "h", 2)
    store.release_holder("h").wait()
    assert settle(store) == 1
    assert (store.dead(), bodies(store, "DLQ.orders")) == ([(large, "q")], [b"small"])


class _Damaged:
    """A store that cannot read one message."""

    def __init__(self, store: MessageStore, damaged: int) -> None:
        self.dead, self.expired, self.expire = store.dead, store.expired, store.expire
        self._store = store
        self._damaged = damaged

    def dead_letter(self, message_id: int, queue: str) -> Moved:
        if message_id == self._damaged:
            raise LocalDamageError("a file of the local copy is damaged")
        return self._store.dead_letter(message_id, queue)


def test_a_dead_message_that_cannot_be_read_does_not_keep_others_back(store: MessageStore) -> None:
    twice(store, deliveries_max=1)
    damaged = send(store, b"damaged", "q")
    send(store, b"good", "q")
    store.take_all("q", "h", 2)
    store.release_holder("h").wait()
    assert Disposal(_Damaged(store, damaged)).settle() == 1
    store.flush().wait()
    assert bodies(store, "DLQ.orders") == [b"good"]
