"""A holder that does not come back in time has let go: every later call finds it so, with or without `tick`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from journal.errors import MessageHeldError
from journal.limits import Limits
from journal.store.model import Message, QueueConfig, ReferenceState
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, infos, refuse, send

Use = Callable[[MessageStore, int], object]


def committed(store: MessageStore, use: Callable[[int], object]) -> None:
    tx = store.begin()
    use(tx)
    store.commit(tx).wait()


USES: dict[str, tuple[Use, tuple[ReferenceState, str, int] | None]] = {
    "acquire": (lambda store, sent: store.acquire(sent, "q", "new"), (ReferenceState.HELD, "new", 0)),
    "acquire-in-a-transaction": (
        lambda store, sent: committed(store, lambda tx: store.acquire(sent, "q", "new", tx)),
        (ReferenceState.HELD, "new", 0),
    ),
    "acknowledge": (lambda store, sent: store.acknowledge(sent, "q", "new"), None),
    "acknowledge-for-nobody": (lambda store, sent: store.acknowledge(sent, "q"), None),
    "acknowledge-in-a-transaction": (
        lambda store, sent: committed(store, lambda tx: store.acknowledge(sent, "q", "new", tx)),
        None,
    ),
    "deliveries": (lambda store, sent: store.deliveries(sent, "q", 7), (ReferenceState.READY, "", 7)),
    "reattach": (lambda store, sent: store.reattach("gone"), (ReferenceState.READY, "", 0)),
    "release": (lambda store, sent: store.release(sent, "q"), (ReferenceState.READY, "", 1)),
    "release-of-the-late": (lambda store, sent: store.release(sent, "q", "gone"), (ReferenceState.READY, "", 1)),
}
"""Operations on a message that an absent holder holds over, and the state that each leaves it in."""


def held_over(node: StoreNode) -> int:
    """A message that the node has loaded as held, by one who does not come back in time."""
    sent = send(node.store, b"one")
    node.store.acquire(sent, "q", "gone").wait()
    node.crash()
    return sent


@pytest.mark.parametrize("use", USES)
def test_what_nobody_came_back_for_in_time_is_free_for_all(node: StoreNode, use: str) -> None:
    sent = held_over(node)
    act, left = USES[use]
    node.clock.now_ms += node.settings.acquire_grace_ms
    act(node.store, sent)
    node.store.flush().wait()
    for store in (node.store, node.crash()):
        found = [(info.state, info.holder, info.deliveries) for info in infos(store)]
        assert found == ([] if left is None else [left])


def test_a_message_held_over_stays_its_holders_until_the_grace_time_is_over(node: StoreNode) -> None:
    sent, store = held_over(node), node.store
    node.clock.now_ms += node.settings.acquire_grace_ms - 1
    refuse(
        MessageHeldError,
        lambda: store.acquire(sent, "q", "new"),
        lambda: store.acknowledge(sent, "q", "new"),
        lambda: store.release(sent, "q", "new"),
    )
    assert store.holders() == ["gone"]


LOOKS: dict[str, Callable[[MessageStore, int], bool]] = {
    "holders": lambda store, _: store.holders() == [],
    "browse": lambda store, _: [info.state for info in store.browse("q")] == [ReferenceState.READY],
    "explain": lambda store, sent: [info.holder for info in store.explain(sent)] == [""],
    "queue": lambda store, _: (store.queue("q").held, store.queue("q").ready) == (0, 1),
    "queues": lambda store, _: sum(info.held for info in store.queues()) == 0,
    "next_due": lambda store, _: store.next_due() == 0,
}


@pytest.mark.parametrize("look", LOOKS)
def test_after_the_grace_time_every_read_finds_the_message_given_back(node: StoreNode, look: str) -> None:
    sent = held_over(node)
    assert not LOOKS[look](node.store, sent)
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert LOOKS[look](node.store, sent)


def test_a_wall_clock_that_is_set_ends_no_holders_time_and_lengthens_none(node: StoreNode) -> None:
    sent = held_over(node)
    for stepped_ms in (10**9, -(10**9)):
        node.clock.stepped_ms = stepped_ms
        assert node.store.holders() == ["gone"]
        assert node.store.next_due() == node.clock() + node.settings.acquire_grace_ms
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert node.store.holders() == []
    assert node.store.acquire(sent, "q", "new").wait() is not None


def test_a_message_that_expired_in_the_grace_time_is_told(node: StoreNode) -> None:
    sent = send(node.store, b"one", expires=node.clock() + 1)
    node.store.acquire(sent, "q", "gone").wait()
    store = node.crash()
    node.clock.now_ms += node.settings.acquire_grace_ms
    assert store.expired() == [(sent, "q")]


def test_a_read_after_the_grace_time_waits_for_no_room_and_tells_the_state_so_far(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=3, transaction_buffer_operations_max=1)
    with StoreNode(tmp_path, limits=limits, room_timeout_ms=20_000) as node:
        node.store.create_address("orders").wait()
        node.store.create_queue(QueueConfig("q", "orders", journaled_acquisition=True)).wait()
        sent = held_over(node)
        store = node.store
        with node.blocked_writer():
            store.send(Message("orders", b"on its way"), ["q"])
            store.deliveries(sent, "q", 5)
            node.clock.now_ms += node.settings.acquire_grace_ms
            began = time.monotonic()
            assert (store.holders(), [info.holder for info in infos(store)]) == (["gone"], ["gone"])
            assert time.monotonic() - began < 10
        store.flush().wait()
        assert store.holders() == []
        assert [(info.holder, info.deliveries) for info in infos(store)] == [("", 5), ("", 0)]
