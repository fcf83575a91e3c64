"""Consumers with a selection, and browsers: each message is looked at once, until it is ready again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.errors import QueueMissingError
from journal.store.model import Delivery, Held, Message
from journal.store.operations.cursor import StoreCursor
from journal.store.store import MessageStore
from tests.support.references import MemoryIndex
from tests.support.stores import StoreNode, declare, infos


@pytest.fixture(params=[(10**6, 10**6), (8, 2)], ids=["in-memory", "paged"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node", in_memory=request.param, index=MemoryIndex) as running:
        declare(running.store, "q", journaled_acquisition=False)
        yield running


class Odd:
    """Selects messages with an odd number, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, message: Message) -> bool:
        self.asked += 1
        return bool(int(message.body) % 2)


def send(store: MessageStore, *numbers: int, priority: int = 4) -> list[int]:
    return [*store.send_all([Message("orders", b"%d" % n, priority=priority) for n in numbers], ["q"]).wait()]


def all_of(cursor: StoreCursor, count: int = 100, *, browses: bool = False) -> list[int]:
    """The ids of all messages that a cursor finds, up to `count`."""
    found: list[Delivery] = []
    while True:
        wanted = count - len(found)
        found += cursor.browse(wanted) if browses else cursor.take_all("h", wanted)
        if len(found) == count or not cursor.more:
            return [each.message for each in found]
        if cursor.unread:
            cursor.read().wait()


def test_messages_that_do_not_match_are_looked_at_once(node: StoreNode) -> None:
    store, odd = node.store, Odd()
    ids = send(store, *range(600))
    with store.cursor("q", odd) as cursor:
        assert all_of(cursor, 5) == ids[1:10:2]
        assert all_of(cursor, 1000) == ids[11::2]
        assert all_of(cursor) == []
        later = send(store, 600, 601)
        assert all_of(cursor) == later[1:]
    assert odd.asked == 602
    assert [each.message for each in infos(store) if not each.holder] == [*ids[::2], later[0]]


def test_what_becomes_ready_again_behind_the_cursor_is_seen_again(node: StoreNode) -> None:
    store = node.store
    ids = send(store, *range(1, 40, 2))
    urgent = send(store, 41, priority=9)
    store.schedule(ids[3], "q", node.clock() + 500).wait()
    other = store.take_all("q", "other", 2)
    tx = store.begin()
    store.acknowledge(ids[5], "q", tx=tx)
    with store.cursor("q", Odd()) as cursor:
        taken = all_of(cursor)
        assert set(taken) == {*ids, *urgent} - {each.message for each in other} - {ids[3], ids[5]}
        store.release_holder("other").wait()
        store.rollback(tx).wait()
        node.clock.now_ms += 600
        assert all_of(cursor) == [*urgent, ids[0], ids[3], ids[5]]
        store.release_all([Held("q", [ids[7], ids[6]], "h")]).wait()
        first = send(store, 43, priority=9)
        assert all_of(cursor) == [*first, ids[6], ids[7]]


def test_a_paused_queue_hands_out_nothing_and_its_messages_are_there_afterwards(node: StoreNode) -> None:
    store = node.store
    ids = send(store, 1, 3)
    with store.cursor("q", Odd()) as cursor:
        store.pause("q").wait()
        assert all_of(cursor) == []
        store.resume("q").wait()
        assert all_of(cursor) == ids


def test_what_has_expired_is_passed_and_seen_again_if_the_clock_is_set_back(node: StoreNode) -> None:
    store = node.store
    late = store.send(Message("orders", b"1", expires=node.clock() + 10), ["q"]).wait()
    node.clock.stepped_ms += 60
    with store.cursor("q", Odd()) as cursor:
        assert all_of(cursor) == []
        node.clock.stepped_ms -= 60
        assert all_of(cursor) == [late]


def test_a_browser_holds_nothing_and_sees_each_message_once(node: StoreNode) -> None:
    store = node.store
    ids = send(store, *range(20))
    with store.cursor("q", browses=True) as cursor, store.cursor("q", Odd(), browses=True) as odd:
        assert all_of(cursor, 3, browses=True) == ids[:3]
        taken = store.take("q", "h")
        assert taken is not None
        store.release(taken.message, "q").wait()
        assert all_of(cursor, browses=True) == ids[3:]
        assert all_of(odd, browses=True) == ids[1::2]
        later = send(store, 20)
        assert all_of(cursor, browses=True) == later
    assert store.holders() == []


def test_two_cursors_and_a_plain_consumer_share_a_queue(node: StoreNode) -> None:
    store = node.store
    ids = send(store, *range(30))
    with store.cursor("q", Odd()) as one, store.cursor("q", Odd()) as two:
        assert all_of(one, 5) == ids[1:10:2]
        assert all_of(two, 5) == ids[11:20:2]
        assert [each.message for each in store.take_all("q", "i", 30)] == [
            each for at, each in enumerate(ids) if at % 2 == 0 or at >= 20
        ]
        assert all_of(one) == all_of(two) == []


def test_a_cursor_ends_with_its_queue(node: StoreNode) -> None:
    send(node.store, 1)
    with node.store.cursor("q", Odd()) as cursor:
        node.store.destroy_queue("q").wait()
        with pytest.raises(QueueMissingError):
            cursor.take_all("h", 1)


def test_a_selection_that_fails_loses_no_message(node: StoreNode) -> None:
    failing = [True]

    def selects(_: Message) -> bool:
        if failing:
            failing.pop()
            raise ValueError("no number")
        return True

    ids = send(node.store, *range(5))
    with node.store.cursor("q", selects) as cursor:
        with pytest.raises(ValueError, match="no number"):
            all_of(cursor)
        assert all_of(cursor) == ids


def test_a_message_that_goes_before_it_is_read_does_not_stop_the_cursor(node: StoreNode) -> None:
    ids = send(node.store, 1, 3, 5)
    store = node.restart()
    with store.cursor("q", Odd()) as cursor:
        assert (cursor.take_all("h", 10), cursor.unread) == ([], True)
        store.acknowledge(ids[0], "q").wait()
        assert all_of(cursor) == ids[1:]
