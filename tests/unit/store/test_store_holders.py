"""Acquired and given back: holders, redeliveries, schedules, expiry; all of it over activations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from journal.errors import MessageHeldError, MessageMissingError, QueueMissingError
from journal.store.model import Delivery, QueueConfig, ReferenceState
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, bodies, declare, infos, refuse, send, taken

Reactivate = Callable[[StoreNode], MessageStore]
BOTH = pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])


def test_release_keeps_the_place_and_counts_a_delivery(store: MessageStore) -> None:
    first = send(store, b"first")
    send(store, b"second")
    for count in range(3):
        assert store.take("q", "h") == Delivery(first, count, count > 0)
        store.release(first, "q").wait()
    assert bodies(store) == [b"first", b"second"]
    assert [info.deliveries for info in infos(store)] == [3, 0]


def test_a_message_is_held_by_one(store: MessageStore) -> None:
    sent = send(store, b"one")
    store.acquire(sent, "q", "me").wait()
    store.acquire(sent, "q", "me").wait()
    before = infos(store)
    refuse(
        MessageHeldError,
        lambda: store.acquire(sent, "q", "you"),
        lambda: store.acknowledge(sent, "q", "you"),
        lambda: store.release(sent, "q", "you"),
    )
    assert store.take("q", "you") is None
    assert infos(store) == before
    store.release(sent, "q", "me").wait()
    with pytest.raises(MessageHeldError):
        store.release(sent, "q")
    assert store.take("q", "you") == Delivery(sent, 1, True)


def test_operations_on_references_that_are_not_there_change_nothing(store: MessageStore) -> None:
    sent = send(store, b"one")
    before = infos(store)
    for queue, error in (("r", MessageMissingError), ("missing", QueueMissingError)):
        refuse(
            error,
            partial(store.acquire, sent, queue, "h"),
            partial(store.release, sent, queue),
            partial(store.deliveries, sent, queue, 3),
            partial(store.schedule, sent, queue, 3),
            partial(store.move, sent, queue, "orders", ["q"], "why"),
            partial(store.expire, sent, queue),
            partial(store.dead_letter, sent, queue),
        )
    with pytest.raises(QueueMissingError):
        store.take("missing", "h")
    with pytest.raises(QueueMissingError):
        store.browse("missing")
    assert infos(store) == before


@BOTH
def test_what_is_held_stays_its_holders_over_an_activation(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    sent = [send(store, b"%d" % number) for number in range(4)]
    for number, holder in ((2, "a"), (0, "b"), (1, "a")):
        store.acquire(sent[number], "q", holder)
    store.release(sent[0], "q").wait()
    store.acquire(sent[0], "q", "b").wait()
    store = reactivate(node)
    assert sorted(store.holders()) == ["a", "b"]
    assert [(info.holder, info.deliveries) for info in infos(store)] == [("b", 1), ("a", 0), ("a", 0), ("", 0)]
    assert taken(store) == [b"3"]
    assert sorted(store.reattach("a")) == [(sent[1], "q"), (sent[2], "q")]
    assert store.reattach("nobody") == []
    node.clock.now_ms += node.settings.acquire_grace_ms - 1
    assert store.take("q", "c") is None
    node.clock.now_ms += 1
    assert store.take("q", "c") == Delivery(sent[0], 1, True)
    assert sorted(store.holders()) == ["a", "c", "h"]
    store.acknowledge(sent[1], "q", "a").wait()


@BOTH
def test_what_a_holder_takes_after_the_load_is_not_given_back_with_what_it_held_before(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    forgotten, claimed, taken_later, again = (send(store, b"%d" % number) for number in range(4))
    for message in (forgotten, claimed, again):
        store.acquire(message, "q", "h").wait()
    store = reactivate(node)
    store.acquire(claimed, "q", "h").wait()
    store.release(again, "q", "h").wait()
    assert store.take("q", "h") == Delivery(taken_later, 0)
    assert store.take("q", "h") == Delivery(again, 1, True)
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert store.take("q", "other") == Delivery(forgotten, 0)
    assert store.take("q", "other") is None
    assert store.reattach("h") == [(claimed, "q"), (taken_later, "q"), (again, "q")]
    store.release_holder("h").wait()
    assert [info.holder for info in infos(store)] == ["other", "", "", ""]


@BOTH
def test_a_rollback_after_the_grace_gives_back_what_was_held_over(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    """Whether the transaction acknowledges or counts, and was in doubt at the load or began behind it."""
    sent = [send(store, b"%d" % number) for number in range(6)]
    for message in sent[:5]:
        store.acquire(message, "q", "h").wait()
    in_doubt = store.begin()
    store.acknowledge(sent[0], "q", "h", in_doubt)
    store.deliveries(sent[1], "q", 5, in_doubt)
    store.prepare(in_doubt).wait()
    store = reactivate(node)
    assert store.take("q", "h") == Delivery(sent[5], 0)
    later = store.begin()
    store.acknowledge(sent[2], "q", "h", later)
    store.deliveries(sent[3], "q", 5, later)
    store.acquire(sent[4], "q", "h", later)
    store.acknowledge(sent[5], "q", "h", later)
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert store.take("q", "other") is None
    store.rollback(in_doubt).wait()
    store.rollback(later).wait()
    assert [store.take("q", "other") for _ in range(5)] == [*(Delivery(each, 0) for each in sent[:4]), None]
    assert sorted(store.reattach("h")) == [(sent[4], "q"), (sent[5], "q")]


@BOTH
@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.parametrize("grace_passes_first", [True, False])
def test_what_a_transaction_in_doubt_acquires_is_held_over(
    node: StoreNode, store: MessageStore, reactivate: Reactivate, grace_passes_first: bool, comes_back: bool
) -> None:
    sent = send(store, b"one")
    tx = store.begin()
    store.acquire(sent, "q", "h", tx)
    store.prepare(tx).wait()
    store = reactivate(node)
    if comes_back:
        assert store.reattach("h") == []
    if grace_passes_first:
        node.clock.now_ms += node.settings.acquire_grace_ms
        assert store.tick() == 0
    store.commit(tx).wait()
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert store.take("q", "other") == (None if comes_back else Delivery(sent, 0))


@BOTH
def test_a_holder_lets_go_of_everything(node: StoreNode, store: MessageStore, reactivate: Reactivate) -> None:
    for number in range(5):
        send(store, b"%d" % number)
    assert len(taken(store)) == 5
    store.release_holder("h").wait()
    store.release_holder("h").wait()
    assert store.holders() == []
    assert [info.deliveries for info in infos(store)] == [1] * 5
    store = reactivate(node)
    assert [info.deliveries for info in infos(store)] == [1] * 5
    assert taken(store) == [b"%d" % number for number in range(5)]


def test_what_a_transaction_locks_goes_with_its_holder_when_that_lets_go(store: MessageStore) -> None:
    sent = send(store, b"one")
    store.acquire(sent, "q", "gone").wait()
    tx = store.begin()
    store.acknowledge(sent, "q", "gone", tx)
    store.release_holder("gone").wait()
    store.rollback(tx).wait()
    store.flush().wait()
    assert store.take("q", "next") == Delivery(sent, 1, True)


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_holder_acquires_after_it_has_let_go_stays_its_own(store: MessageStore, commits: bool) -> None:
    old, new, inside = (send(store, b"%d" % number) for number in range(3))
    store.acquire(old, "q", "h").wait()
    tx = store.begin()
    store.acknowledge(old, "q", "h", tx)
    store.acquire(inside, "q", "h", tx)
    store.release_holder("h").wait()
    store.acquire(new, "q", "h").wait()
    store.deliveries(new, "q", 7, tx)
    store.acquire(inside, "q", "h", tx)
    (store.commit if commits else store.rollback)(tx).wait()
    store.flush().wait()
    assert store.take("q", "next") == (None if commits else Delivery(old, 1, True))
    assert store.reattach("h") == ([(new, "q"), (inside, "q")] if commits else [(new, "q")])


def test_what_a_transaction_gives_back_whose_holder_has_let_go_is_nobodys(store: MessageStore) -> None:
    sent, behind = send(store, b"one"), send(store, b"two", "r")
    tx = store.begin()
    store.acquire(sent, "q", "h", tx)
    store.release_holder("h")
    store.release(sent, "q", "h", tx)
    store.commit(tx)
    store.acknowledge(behind, "r").wait()
    assert store.holders() == []
    assert store.take("q", "next") == Delivery(sent, 1, True)
    assert store.queue("r").settling == 0


def test_whoever_waits_for_the_next_due_time_learns_that_the_absent_have_let_go(node: StoreNode) -> None:
    sent = send(node.store, b"held")
    node.store.acquire(sent, "q", "gone").wait()
    store = node.crash()
    over = node.clock() + node.settings.acquire_grace_ms
    assert store.next_due() == over
    send(store, b"later", due=over + 1)
    assert store.next_due() == over
    send(store, b"earlier", due=over - 1)
    assert store.next_due() == over - 1
    node.clock.now_ms = over
    store.tick()
    assert store.next_due() == over + 1
    assert [info.state for info in infos(store)].count(ReferenceState.HELD) == 0


GIVEN_BACK_ONE_BY_ONE = StoreSettings(release_operations_max=1)


@pytest.mark.parametrize("lets_go", ["grace", "itself"])
def test_a_holder_that_comes_back_before_its_message_is_given_back_keeps_it(tmp_path: Path, lets_go: str) -> None:
    """A rollback after a holder let go gives back in bounded groups: most of it waits for the next ones."""
    with StoreNode(tmp_path, GIVEN_BACK_ONE_BY_ONE) as node:
        declare(node.store, "q")
        sent = [send(node.store, b"%d" % number) for number in range(6)]
        for message in sent:
            node.store.acquire(message, "q", "h").wait()
        store = node.restart() if lets_go == "grace" else node.store
        tx = store.begin()
        for message in sent:
            store.acknowledge(message, "q", "h", tx)
        if lets_go == "grace":
            node.clock.now_ms += node.settings.acquire_grace_ms
            store.tick()
        else:
            store.release_holder("h").wait()
        with node.blocked_writer():
            store.rollback(tx)
            # the first is given back; the second is settled, the third taken by another, the fourth locked again
            assert [info.holder for info in infos(store)] == ["", *["h"] * 5]
            store.acknowledge(sent[1], "q", "h")
            store.release(sent[2], "q", "h")
            assert store.take("q", "other") == Delivery(sent[0], lets_go != "grace", lets_go != "grace")
            assert store.take("q", "other") == Delivery(sent[2], 1, True)
            again = store.begin()
            store.acknowledge(sent[3], "q", "h", again)
            store.acquire(sent[4], "q", "h")
            assert store.reattach("h") == [(sent[5], "q"), (sent[4], "q")]
        for _ in range(10):
            store.deliveries(sent[5], "q", 3).wait()  # groups that become durable are when it goes on
        store.rollback(again).wait()
        assert [(info.message, info.holder) for info in infos(store)] == [
            *((sent[place], "other") for place in (0, 2)),
            *((sent[place], "h") for place in (3, 4, 5)),
        ]


def test_what_nobody_comes_back_for_is_given_back_group_by_group(tmp_path: Path) -> None:
    """Also what another transaction has locked and left meanwhile, once."""
    with StoreNode(tmp_path, GIVEN_BACK_ONE_BY_ONE) as node:
        store = node.store
        declare(store, "q")
        sent = [send(store, b"%d" % number) for number in range(4)]
        for message in sent:
            store.acquire(message, "q", "h").wait()
        tx = store.begin()
        for message in sent:
            store.acknowledge(message, "q", "h", tx)
        store.release_holder("h").wait()
        with node.blocked_writer():
            store.rollback(tx)
            again = store.begin()
            store.acknowledge(sent[2], "q", "h", again)
            store.rollback(again)
        assert [store.take("q", "other") for _ in range(5)] == [*(Delivery(each, 1, True) for each in sent), None]


@BOTH
def test_the_broker_may_count_deliveries_itself(node: StoreNode, store: MessageStore, reactivate: Reactivate) -> None:
    sent = send(store, b"one")
    store.deliveries(sent, "q", 7).wait()
    store = reactivate(node)
    assert store.take("q", "h") == Delivery(sent, 7, True)
    store.deliveries(sent, "q", 8).wait()
    store = reactivate(node)
    (info,) = infos(store)
    assert (info.holder, info.deliveries) == ("h", 8)


# ---- times -------------------------------------------------------------------------------------------------------


@BOTH
def test_a_scheduled_message_waits_for_its_time(node: StoreNode, store: MessageStore, reactivate: Reactivate) -> None:
    due = node.clock() + 1000
    send(store, b"later", due=due)
    send(store, b"now")
    store = reactivate(node)
    assert (store.next_due(), taken(store)) == (due, [b"now"])
    assert [info.state for info in infos(store)] == [ReferenceState.SCHEDULED, ReferenceState.HELD]
    node.clock.now_ms = due - 1
    assert (store.tick(), store.take("q", "h")) == (0, None)
    node.clock.now_ms = due
    assert store.tick() == 1
    assert taken(store) == [b"later"]
    assert store.next_due() == 0


@BOTH
def test_a_route_has_the_messages_time_or_its_own(node: StoreNode, store: MessageStore, reactivate: Reactivate) -> None:
    first, second = node.clock() + 100, node.clock() + 200
    sent = send(store, b"one", due=first)
    store.route(sent, "r", due=second).wait()
    store = reactivate(node)
    assert [info.due for info in store.explain(sent)] == [first, second]
    store.create_queue(QueueConfig("s", "orders")).wait()
    store.route(sent, "s").wait()
    assert [info.due for info in store.explain(sent)] == [first, second, first]
    store = reactivate(node)
    assert [info.due for info in store.explain(sent)] == [first, second, first]
    node.clock.now_ms = second
    assert [taken(store, queue) for queue in ("q", "r", "s")] == [[b"one"]] * 3


@BOTH
def test_a_message_is_scheduled_again_or_at_once(node: StoreNode, store: MessageStore, reactivate: Reactivate) -> None:
    a, b, c = (send(store, body) for body in (b"a", b"b", b"c"))
    due = node.clock() + 50
    store.schedule(a, "q", due)
    store.acquire(b, "q", "h")
    store.schedule(b, "q", due).wait()
    assert store.take("q", "h") == Delivery(c, 0)
    store.release(b, "q").wait()
    store = reactivate(node)
    assert [info.state for info in infos(store)][:2] == [ReferenceState.SCHEDULED] * 2
    store.schedule(a, "q", 0).wait()
    store = reactivate(node)
    assert store.take("q", "h") == Delivery(a, 0)
    with pytest.raises(MessageHeldError):
        store.acquire(b, "q", "h")
    node.clock.now_ms = due
    store.acquire(b, "q", "h").wait()


@BOTH
def test_an_expired_message_is_not_delivered_and_is_told(
    node: StoreNode, store: MessageStore, reactivate: Reactivate
) -> None:
    expires = node.clock() + 100
    gone = send(store, b"gone", expires=expires)
    send(store, b"stays")
    store = reactivate(node)
    node.clock.now_ms = expires - 1
    assert store.expired() == []
    node.clock.now_ms = expires
    assert taken(store) == [b"stays"]
    assert store.expired() == [(gone, "q")]
    assert store.expire(gone, "q").wait() == 0
    assert store.expired() == []
    with pytest.raises(MessageMissingError):
        store.message(gone)


def test_whoever_gives_back_says_whether_it_counts(node: StoreNode, store: MessageStore) -> None:
    """A client that connects again and again, and never reads what was sent ahead, is delivered nothing."""
    sent = [send(store, b"%d" % number) for number in range(4)]
    for _ in range(3):
        assert len(taken(store, "q", "client")) == 4
        tx = store.begin()
        store.release(sent[0], "q", "client", counts=False)
        store.release(sent[1], "q", "client")
        store.release(sent[2], "q", "client", tx, counts=False)
        store.commit(tx)
        store.release_holder("client", counts=False).wait()
    for living in (store, node.crash()):
        assert [(info.deliveries, info.holder) for info in infos(living)] == [(0, ""), (3, ""), (0, ""), (0, "")]


@pytest.mark.parametrize("counts", [True, False])
def test_what_a_transaction_gives_back_counts_as_its_holder_has_said(store: MessageStore, counts: bool) -> None:
    acknowledged, acquired = send(store, b"one"), send(store, b"two")
    store.acquire(acknowledged, "q", "h").wait()
    back, forth = store.begin(), store.begin()
    store.acknowledge(acknowledged, "q", "h", back)
    store.acquire(acquired, "q", "h", forth)
    store.release_holder("h", counts=counts)
    store.rollback(back).wait()
    store.commit(forth).wait()
    store.flush().wait()
    assert [(info.deliveries, info.holder) for info in infos(store)] == [(int(counts), "")] * 2


class YieldingLock:
    """A reentrant lock whose holder lets somebody else in, once, after so many holds."""

    def __init__(self) -> None:
        self._lock = threading._RLock()  # type: ignore[attr-defined]
        self._depth = 0
        self._left = 0
        self._act: Callable[[], object] | None = None

    def let_in(self, after: int, act: Callable[[], object]) -> None:
        self._left, self._act = after, act

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        is_over = self._depth == 0
        self._lock.release()
        if is_over and self._act is not None:
            self._left -= 1
            if self._left <= 0:
                act, self._act = self._act, None
                act()


@pytest.mark.parametrize(("activates", "how", "after"), [(False, "commit", 1), (True, "rollback", 2)])
def test_what_a_transaction_settles_while_its_holder_lets_go_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activates: bool, how: str, after: int
) -> None:
    locks: list[YieldingLock] = []

    def make() -> YieldingLock:
        locks.append(YieldingLock())
        return locks[-1]

    monkeypatch.setattr("journal.store.operations.core.threading.RLock", make)
    with StoreNode(tmp_path, GIVEN_BACK_ONE_BY_ONE) as node:
        declare(node.store, "q")
        sent = [send(node.store, b"%d" % number) for number in range(4)]
        for message in sent[:3]:
            node.store.acquire(message, "q", "h").wait()
        store = node.restart() if activates else node.store
        tx = store.begin()
        store.deliveries(sent[0], "q", 5, tx)
        store.acquire(sent[3], "q", "h", tx)
        settle = store.commit if how == "commit" else store.rollback
        locks[-1].let_in(after, lambda: settle(tx).wait())
        store.release_holder("h").wait()
        store.flush().wait()
        node.clock.now_ms += node.settings.acquire_grace_ms
        store.tick()
        assert store.holders() == []
