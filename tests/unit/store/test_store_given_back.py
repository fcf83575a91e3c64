"""Messages that are given back together: by `release_all`, or by the rollback of the transaction that had them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from journal.errors import FullError, MessageHeldError, MessageMissingError, QueueMissingError, StoreError
from journal.limits import Limits
from journal.store.model import Held, ReferenceState
from journal.store.settings import StoreSettings
from journal.v1.store_pb2 import REFERENCE
from tests.support.stores import StoreNode, bodies, declare, infos, refuse, send, updates_in_journal

JOURNALED = pytest.mark.parametrize("journaled", [False, True], ids=["in-memory", "journaled"])


@pytest.fixture
def journaled() -> bool:
    return False


@pytest.fixture
def node(tmp_path: Path, journaled: bool) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node", StoreSettings(release_operations_max=2)) as running:
        declare(running.store, "q", "r", journaled_acquisition=journaled)
        yield running


def hold(node: StoreNode, count: int = 5) -> list[int]:
    """Messages of q that "h" holds."""
    ids = [send(node.store, b"%d" % number) for number in range(count)]
    node.store.take_all("q", "h", count)
    return ids


@JOURNALED
def test_what_is_released_together_is_in_its_places_and_its_count_survives_a_crash(node: StoreNode) -> None:
    ids = hold(node)
    released = node.store.release_all([Held("q", ids[:1:-1], "h"), Held("q", ids[:1])])
    assert released.ids == (*ids[:1:-1], ids[0])
    released.wait()
    assert [(each.message, each.deliveries) for each in node.store.take_all("q", "i", 9)] == [
        (each, 1) for each in ids if each != ids[1]
    ]
    node.store.release_all([Held("q", ids[:1], "i")], counts=False).wait()
    assert [each.deliveries for each in infos(node.crash())] == [1, 0, 1, 1, 1]


def test_an_uncounted_release_writes_nothing_unless_the_acquisition_was_written(node: StoreNode) -> None:
    ids = hold(node)
    assert node.store.release_all([Held("q", ids, "h")], counts=False).done
    assert updates_in_journal(node, REFERENCE) == []


@JOURNALED
@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_one_message_that_cannot_be_released_refuses_all(node: StoreNode, transacted: bool) -> None:
    ids, store = hold(node), node.store
    ready = send(store, b"ready")
    tx = store.begin() if transacted else 0
    before = infos(store)
    for error, held in (
        (MessageHeldError, [Held("q", [*ids, ready])]),
        (MessageHeldError, [Held("q", ids[:2], "h"), Held("q", ids[2:], "other")]),
        (MessageMissingError, [Held("q", [*ids, 1 << 50])]),
        (StoreError, [Held("q", ids), Held("q", ids[:1])]),
        (QueueMissingError, [Held("q", ids), Held("missing", ids)]),
    ):
        refuse(error, partial(store.release_all, held, tx))
    assert infos(store) == before
    store.release_all([Held("q", ids, "h")], tx)
    if tx:
        assert {each.state for each in infos(store)[:5]} == {ReferenceState.LOCKED}
        store.commit(tx).wait()
    assert {each.state for each in infos(store)} == {ReferenceState.READY}


@JOURNALED
@pytest.mark.parametrize("prepared", [False, True])
def test_a_rollback_releases_what_its_transaction_had_and_counts_it(node: StoreNode, prepared: bool) -> None:
    ids, store = hold(node), node.store
    ready = send(store, b"ready")
    tx = store.begin()
    store.acknowledge_all([Held("q", ids[:3], "h"), Held("q", [ready])], tx)
    store.release(ids[3], "q", "h", tx)
    if prepared:
        store.prepare(tx, b"xid").wait()
    store.rollback(tx, release=True).wait()
    store.tick()
    found = [(each.state.value, each.deliveries, each.holder) for each in infos(store)]
    assert found == [*[("ready", 1, "")] * 4, ("held", 0, "h"), ("ready", 0, "")]
    store.flush().wait()
    assert [each.deliveries for each in infos(node.crash())] == [1, 1, 1, 1, 0, 0]


def test_a_rollback_without_release_leaves_messages_with_their_holders(node: StoreNode) -> None:
    ids, store = hold(node, 2), node.store
    tx = store.begin()
    store.acknowledge_all([Held("q", ids, "h")], tx)
    store.rollback(tx).wait()
    assert [(each.state, each.deliveries) for each in infos(store)] == [(ReferenceState.HELD, 0)] * 2


def test_the_rollback_of_a_transaction_whose_holder_is_gone_counts_once(node: StoreNode) -> None:
    ids, store = hold(node, 2), node.store
    tx = store.begin()
    store.acknowledge_all([Held("q", ids, "h")], tx)
    store.release_holder("h").wait()
    store.rollback(tx, release=True).wait()
    assert [(each.state, each.deliveries) for each in infos(store)] == [(ReferenceState.READY, 1)] * 2
    assert bodies(store) == [b"0", b"1"]


def _fill(node: StoreNode) -> None:
    while True:
        node.journal.add(node.journal.new_id(), 0, b"")


def test_what_there_was_no_room_to_give_back_is_given_back_soon(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=12, transaction_buffer_operations_max=12)
    with StoreNode(tmp_path / "full", limits=limits, room_timeout_ms=0) as node:
        store = node.store
        declare(store, "q", journaled_acquisition=False)
        (message,) = hold(node, 1)
        tx = store.begin()
        store.acknowledge(message, "q", "h", tx)
        woken: list[None] = []
        store.watch(lambda: woken.append(None))
        assert store.take_all("q", "i", 1) == []
        with node.blocked_writer():
            with pytest.raises(FullError):
                _fill(node)
            store.rollback(tx, release=True)
            assert (len(woken), store.woken()) == (1, [])
        node.journal.flush().wait()
        node.clock.now_ms = store.next_due()
        store.tick()
        assert (store.woken(), [each.deliveries for each in store.take_all("q", "i", 1)]) == (["q"], [1])
