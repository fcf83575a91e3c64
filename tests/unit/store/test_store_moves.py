"""Moved, expired and dead: a copy elsewhere that names its origin, and the original settled, both or neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.errors import AddressMissingError, FullError, QueueMissingError, StoreError
from journal.limits import Limits
from journal.store.model import Delivery, Message, Origin, QueueConfig, Routing
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import MESSAGE
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send


def test_a_move_copies_and_settles(node: StoreNode, store: MessageStore) -> None:
    declare(store, "archive/a", "archive/b", address="archive")
    message = Message("orders", b"one", properties={"n": 1}, priority=8, expires=node.clock() + 9, duplicate_id=b"d")
    sent = store.send(message, ["q", "r"]).wait()
    copy = store.move(sent, "q", "archive", ["archive/a", "archive/b"], "kept").wait()
    for living in (store, node.crash()):
        moved = living.message(copy)
        assert (moved.address, moved.body, moved.properties, moved.priority) == ("archive", b"one", {"n": 1}, 8)
        assert (moved.duplicate_id, moved.expires) == (b"", message.expires)
        assert moved.origin == Origin(sent, "orders", "q", "kept", message.expires)
        assert [bodies(living, queue) for queue in ("q", "r", "archive/a", "archive/b")] == [[], *([[b"one"]] * 3)]
    store = node.store
    store.move(sent, "r", "archive", ["archive/b"], "kept").wait()
    assert kinds_in_journal(node)[MESSAGE] == 2
    assert bodies(store, "archive/b") == [b"one", b"one"]


def test_a_held_message_is_moved_for_its_holder(store: MessageStore) -> None:
    declare(store, "dead", address="dead")
    sent = send(store, b"one")
    assert store.take("q", "h") is not None
    store.move(sent, "q", "dead", ["dead"], "poison").wait()
    assert (infos(store), bodies(store, "dead"), store.holders()) == ([], [b"one"], [])


def test_a_refused_move_changes_nothing(node: StoreNode, store: MessageStore) -> None:
    declare(store, "archive", address="archive")
    sent = send(store, b"one")
    before = kinds_in_journal(node), store.queues()
    for address, queues, error in (
        ("nowhere", ["archive"], AddressMissingError),
        ("archive", ["missing"], QueueMissingError),
        ("archive", ["r"], StoreError),
    ):
        with pytest.raises(error):
            store.move(sent, "q", address, queues, "why")
    assert (kinds_in_journal(node), store.queues()) == before


def test_expired_and_dead_messages_go_where_their_queue_says(node: StoreNode, store: MessageStore) -> None:
    for address in ("late", "dead"):
        store.create_address(address)
        for name, routing in (("m1", Routing.MULTICAST), ("m2", Routing.MULTICAST), ("a1", Routing.ANYCAST)):
            store.create_queue(QueueConfig(f"{address}/{name}", address, routing))
        store.create_queue(QueueConfig(f"{address}/a2", address))
    store.create_queue(QueueConfig("s", "orders", expiry_address="late", dead_letter_address="dead", deliveries_max=1))
    late = send(store, b"late", "s", expires=node.clock() + 1)
    dead = send(store, b"dead", "s")
    expired = store.expire(late, "s").wait()
    store.dead_letter(dead, "s").wait()
    assert (store.message(expired).expires, store.message(expired).origin) == (
        0,
        Origin(late, "orders", "s", "expired", node.clock() + 1),
    )
    assert infos(store, "s") == []
    for address in ("late", "dead"):
        found = [bodies(store, f"{address}/{name}") for name in ("m1", "m2", "a1", "a2")]
        assert found == [[address.encode()]] * 3 + [[]]


def test_a_dead_letter_stays_until_somebody_acts_and_so_does_what_is_sent_again(small_node: StoreNode) -> None:
    until_ms = small_node.clock() + 60_000
    declare(small_node.store, "dlq", address="dead")
    small_node.store.create_queue(QueueConfig("s", "orders", dead_letter_address="dead"))
    for body in (b"small", bytes(1000)):  # the second one is moved in a transaction of its own
        small_node.clock.now_ms = until_ms - 60_000
        sent = send(small_node.store, body, "s", expires=until_ms)
        dead = small_node.store.dead_letter(sent, "s").wait()
        store = small_node.crash()
        small_node.clock.now_ms = until_ms
        found = store.message(dead)
        assert (found.expires, found.origin) == (0, Origin(sent, "orders", "s", "dead", until_ms))
        assert (store.expired(), store.take("dlq", "h")) == ([], Delivery(dead, 0, large=len(body) > 100))
        again = store.move(dead, "dlq", "orders", ["q"], "again").wait()
        found = store.message(again)
        assert (found.expires, found.origin) == (0, Origin(dead, "dead", "dlq", "again", until_ms))


def test_whoever_calls_may_choose_the_queues_of_what_is_expired_or_dead(store: MessageStore) -> None:
    declare(store, "late/1", "late/2", "late/3", address="late")
    store.create_queue(QueueConfig("s", "orders", expiry_address="late", dead_letter_address="late"))
    sent = [send(store, b"%d" % number, "s") for number in range(3)]
    moved = store.expire(sent[0], "s", queues=["late/2", "late/3"]), store.dead_letter(sent[1], "s", queues=["late/3"])
    assert [each.queues for each in moved] == [("late/2", "late/3"), ("late/3",)]
    store.flush().wait()
    assert [bodies(store, f"late/{number}") for number in (1, 2, 3)] == [[], [b"0"], [b"0", b"1"]]
    before = store.queues()
    refuse(
        StoreError,
        lambda: store.expire(sent[2], "s", queues=["q"]),
        lambda: store.expire(send(store, b"one"), "q", queues=["late/1"]),
    )
    assert [info.ready for info in store.queues()] == [info.ready + (info.config.name == "q") for info in before]


def test_an_expired_message_without_an_address_for_it_is_settled(node: StoreNode, store: MessageStore) -> None:
    assert store.expire(send(store, b"late"), "q").wait() == 0
    assert (infos(store), kinds_in_journal(node)[MESSAGE]) == ([], 0)


def test_an_address_for_dead_and_expired_messages_is_made_with_its_queue(node: StoreNode, store: MessageStore) -> None:
    declare(store, address="late")
    store.create_queue(QueueConfig("s", "orders", expiry_address="late", dead_letter_address="dead"))
    tx = store.begin()
    assert store.expire(send(store, b"late", "s"), "s").queues == ("late",)
    assert store.dead_letter(send(store, b"dead", "s"), "s", tx=tx).queues == ("dead",)
    store.commit(tx).wait()
    store = node.crash()
    assert (bodies(store, "late"), bodies(store, "dead")) == ([b"late"], [b"dead"])


@pytest.mark.parametrize("commits", [True, False])
def test_a_move_in_a_transaction_happens_with_it(store: MessageStore, commits: bool) -> None:
    declare(store, "archive", address="archive")
    sent = send(store, b"one")
    tx = store.begin()
    store.move(sent, "q", "archive", ["archive"], "kept", tx=tx)
    assert bodies(store, "archive") == []
    (store.commit if commits else store.rollback)(tx).wait()
    assert (bodies(store), bodies(store, "archive")) == (([], [b"one"]) if commits else ([b"one"], []))


@pytest.mark.parametrize("durable", [True, False])
def test_a_large_message_moves_in_pieces(small_node: StoreNode, durable: bool) -> None:
    node, store = small_node, small_node.store
    declare(store, "archive", address="archive")
    body = bytes(range(256)) * 10
    sent = send(store, body, durable=durable)
    before = kinds_in_journal(node)
    copy = store.move(sent, "q", "archive", ["archive"], "kept").wait()
    assert store.message(copy).body == body
    assert store.message(copy).durable is durable
    assert (bodies(store), bodies(store, "archive")) == ([], [body])
    assert kinds_in_journal(node) == before
    store.acknowledge(copy, "archive").wait()
    assert store.volatile_bytes == (0, 0)


def test_a_large_move_that_finds_no_room_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    limits = Limits(staged_bytes_max=3000, staged_total_bytes_max=3000)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    with StoreNode(tmp_path_factory.mktemp("small") / "node", settings, limits=limits) as node:
        store = node.store
        declare(store, "q")
        declare(store, "archive", address="archive")
        sent = send(store, b"x" * 1400)
        tx = store.begin()
        other = send(store, b"x" * 1200, tx=tx)
        before = infos(store), kinds_in_journal(node)
        store.prepare(tx)
        with pytest.raises(FullError):
            store.move(sent, "q", "archive", ["archive"], "kept")
        assert (infos(store), kinds_in_journal(node)) == before
        assert [info.tx for info in store.transactions()] == [tx]
        store.rollback(tx).wait()
        store.move(sent, "q", "archive", ["archive"], "kept").wait()
        assert other != sent


@pytest.mark.parametrize("size", [1, 150], ids=["small", "large"])
def test_a_move_in_a_transaction_that_is_refused_has_done_nothing(small_node: StoreNode, size: int) -> None:
    store = small_node.store
    declare(store, "other", address="elsewhere")
    sent, known = send(store, b"x" * size), send(store, b"known", "other", address="elsewhere")
    tx = store.begin()
    for queues, id in ((["r"], 0), (["other", "other"], 0), (["other"], 1), (["other"], known)):
        with pytest.raises(StoreError):
            store.move(sent, "q", "elsewhere", queues, "why", tx=tx, id=id)
    store.commit(tx).wait()
    assert (bodies(store), bodies(store, "other")) == ([b"x" * size], [b"known"])


def test_a_move_that_is_cut_off_refuses_its_transaction(tmp_path: Path) -> None:
    """There is room in memory for the original, none for the copy."""
    with StoreNode(tmp_path / "node", StoreSettings(volatile_bytes_max=30)) as node:
        store = node.store
        declare(store, "q")
        sent = store.send(Message("orders", b"x" * 10, durable=False), ["q"]).wait()
        tx = store.begin()
        with pytest.raises(FullError):
            store.move(sent, "q", "orders", ["q"], "why", tx=tx)
        with pytest.raises(StoreError, match="cut off"):
            store.commit(tx)
        store.rollback(tx).wait()
        assert bodies(store) == [b"x" * 10]
