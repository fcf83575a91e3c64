"""Duplicate detection: windows of the last ids, reserved in transactions, the same after every activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from journal.errors import DuplicateMessageError, FullError
from journal.store.duplicates import DuplicateWindow
from journal.store.model import Message
from journal.store.store import MessageStore
from journal.v1.store_pb2 import MESSAGE
from tests.support.stores import StoreNode, bodies, declare, infos, kinds_in_journal, refuse

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    """A store with an address that remembers 3 ids."""
    with StoreNode(tmp_path / "node") as running:
        declare(running.store, "q", window=3)
        yield running


def send(store: MessageStore, duplicate_id: bytes, tx: int = 0, *, durable: bool = True) -> None:
    message = Message("orders", duplicate_id, duplicate_id=duplicate_id, durable=durable)
    pending = store.send(message, ["q"], tx)
    if not tx:
        pending.wait()


def refuses(store: MessageStore, duplicate_id: bytes) -> bool:
    """Whether the id is a duplicate, asked in a transaction that is rolled back."""
    tx = store.begin()
    try:
        send(store, duplicate_id, tx)
    except DuplicateMessageError:
        return True
    finally:
        store.rollback(tx).wait()
    return False


def remembered(store: MessageStore, ids: bytes = b"abcdefgh") -> bytes:
    return bytes(each for each in ids if refuses(store, bytes([each])))


def test_an_id_that_enters_again_stays_as_long_as_the_last_time_says() -> None:
    window = DuplicateWindow(1, 3)
    for duplicate_id in (b"a", b"b", b"a"):
        window.enter(duplicate_id, window.next_slot())
    for duplicate_id, ids in ((b"c", {b"a", b"b", b"c"}), (b"d", {b"a", b"c", b"d"}), (b"e", {b"c", b"d", b"e"})):
        window.enter(duplicate_id, window.next_slot())
        assert window.ids() == ids


@pytest.mark.parametrize("first_enters", [True, False])
def test_an_id_that_another_transaction_reserves_again_is_its_own(first_enters: bool) -> None:
    window = DuplicateWindow(1, 3)
    first, second = (window.reserve(b"a", window.next_slot(tx), tx) for tx in (7, 8))
    window.settle([first], entered=first_enters)
    with pytest.raises(DuplicateMessageError):
        window.check(b"a")
    window.settle([second], entered=True)
    assert window.ids() == {b"a"}
    window.settle([window.reserve(b"b", window.next_slot(), 9)], entered=True)
    window.settle([window.reserve(b"c", window.next_slot(), 9)], entered=True)
    assert window.ids() == {b"a", b"b", b"c"}


def test_a_duplicate_is_refused_and_changes_nothing(node: StoreNode) -> None:
    store = node.store
    send(store, b"a")
    before = infos(store), kinds_in_journal(node)
    with pytest.raises(DuplicateMessageError):
        send(store, b"a")
    assert (infos(store), kinds_in_journal(node)) == before


@BOTH
def test_the_window_is_the_last_ids_over_activations(node: StoreNode, reactivate: Reactivate) -> None:
    store = node.store
    for number, expected in enumerate((b"a", b"ab", b"abc", b"bcd", b"cde", b"def", b"efg")):
        send(store, b"abcdefg"[number : number + 1])
        assert remembered(store) == expected
        if number % 2:
            store.flush().wait()
            store = reactivate(node)
            assert remembered(store) == expected


@BOTH
def test_an_id_outlives_its_message(node: StoreNode, reactivate: Reactivate) -> None:
    store = node.store
    send(store, b"a")
    store.flush().wait()
    store.acknowledge(infos(store)[0].message, "q").wait()
    assert kinds_in_journal(node)[MESSAGE] == 0
    assert refuses(reactivate(node), b"a")


def test_ids_of_what_is_not_durable_count_until_the_node_is_gone(node: StoreNode) -> None:
    store = node.store
    send(store, b"a")
    send(store, b"b", durable=False)
    assert remembered(store) == b"ab"
    store.flush().wait()
    assert remembered(node.restart()) == b"a"


def test_a_transaction_reserves_its_ids_until_it_is_settled(node: StoreNode) -> None:
    store = node.store
    first, second = store.begin(), store.begin()
    send(store, b"a", first)
    send(store, b"b", second)
    assert (refuses(store, b"a"), refuses(store, b"b"), refuses(store, b"c")) == (True, True, False)
    store.rollback(second).wait()
    assert not refuses(store, b"b")
    store.commit(first).wait()
    assert refuses(store, b"a")


def test_a_duplicate_refuses_the_whole_transaction(node: StoreNode) -> None:
    store = node.store
    send(store, b"a")
    tx = store.begin()
    send(store, b"b", tx)
    with pytest.raises(DuplicateMessageError):
        send(store, b"a", tx)
    refuse(DuplicateMessageError, lambda: store.commit(tx), lambda: store.prepare(tx), lambda: send(store, b"c", tx))
    store.rollback(tx).wait()
    assert bodies(store) == [b"a"]
    assert remembered(store) == b"a"


def test_the_same_id_twice_in_a_transaction_is_a_duplicate(node: StoreNode) -> None:
    tx = node.store.begin()
    send(node.store, b"a", tx)
    with pytest.raises(DuplicateMessageError):
        send(node.store, b"a", tx)


@BOTH
def test_ids_in_doubt_stay_reserved_and_the_window_goes_on(node: StoreNode, reactivate: Reactivate) -> None:
    store = node.store
    for each in (b"a", b"b", b"c"):
        send(store, each)
    in_doubt = store.begin()
    send(store, b"d", in_doubt)
    store.prepare(in_doubt, b"xid").wait()
    assert remembered(store) == b"abcd"
    send(store, b"e")
    store.flush().wait()
    store = reactivate(node)
    assert remembered(store) == b"acde"  # d has the slot of a, which stays until d is settled
    store.commit(in_doubt).wait()
    assert remembered(store) == b"cde"
    store = reactivate(node)
    assert remembered(store) == b"cde"
    send(store, b"f")
    assert remembered(store) == b"def"


def test_a_window_that_transactions_reserve_wholly_takes_no_more(node: StoreNode) -> None:
    store = node.store
    tx = store.begin()
    for each in (b"a", b"b", b"c", b"d", b"e"):
        send(store, each, tx)
    with pytest.raises(FullError):
        send(store, b"f")
    store.commit(tx).wait()
    assert remembered(store) == b"cde"
    assert remembered(node.crash()) == b"cde"


def test_an_address_without_a_window_detects_nothing(node: StoreNode) -> None:
    declare(node.store, "free", address="free")
    for _ in range(2):
        node.store.send(Message("free", duplicate_id=b"a"), ["free"]).wait()


def test_a_loaded_window_reuses_slots_in_order_of_age() -> None:
    window = DuplicateWindow(1, 4)
    window.load([(2, b"old"), (0, b"new")], [(3, b"reserved", 9)])
    assert (b"reserved" in window, b"old" in window, window.ids()) == (True, True, {b"old", b"new"})
    for duplicate_id, slot in ((b"x", 1), (b"y", 2), (b"z", 0)):
        assert window.next_slot() == slot
        window.enter(duplicate_id, slot)
    assert window.ids() == {b"x", b"y", b"z"}


@BOTH
def test_ids_that_were_reserved_and_rolled_back_make_no_other_forgotten_too_early(
    node: StoreNode, reactivate: Reactivate
) -> None:
    store = node.store
    for each in (b"a", b"b", b"c"):
        send(store, each)
    first, second = store.begin(), store.begin()
    for tx, each in ((first, b"d"), (second, b"e"), (first, b"f")):
        send(store, each, tx)
    for tx in (first, second):
        store.rollback(tx).wait()
    send(store, b"g")
    assert remembered(store) == b"bcg"
    store.flush().wait()
    assert remembered(reactivate(node)) == b"bcg"
