"""A message that expires by a wall clock that was set: hidden, shown again, and settled only when the clocks agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.process.clocks import AGREEMENT_MS
from journal.store.model import Message
from journal.store.queues.tables import SHOWN_MAX
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.references import MemoryIndex
from tests.support.stores import StoreNode, bodies, declare, send, taken

LEAP_MS = 3_600_000
MANY = 2 * SHOWN_MAX + 100
"""More than two batches of what is put back in one go."""
PLACES = {"in memory": (10**6, 10**6), "in the index": (60, 40)}


@pytest.fixture(params=PLACES)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node", StoreSettings(), in_memory=PLACES[request.param], index=MemoryIndex) as running:
        declare(running.store, "q", "r")
        yield running


def send_many(node: StoreNode, expires: int) -> list[int]:
    sent = node.store.send_all([Message("orders", b"%d" % number, expires=expires) for number in range(MANY)], ["q"])
    sent.wait(30)
    return [*sent.ids]


def take_all(store: MessageStore) -> list[bytes]:
    """Bodies of what `take` gives, as a broker asks for it: again while `next_due` has passed."""
    found: list[bytes] = []
    while True:
        more = taken(store)
        found += more
        if not more and not store.next_due():
            return found


def test_what_a_leap_of_the_clock_has_hidden_is_there_again_in_its_order_when_it_is_taken_back(node: StoreNode) -> None:
    store = node.store
    soon = node.clock() + AGREEMENT_MS // 2
    send_many(node, soon)
    last = send(store, b"never expires")
    node.clock.stepped_ms = LEAP_MS
    while (hidden := store.take("q", "h")) is None:
        assert store.next_due()
    assert hidden.message == last
    assert store.expired() == []
    assert len(store.expired(agreed=False)) == MANY
    node.clock.stepped_ms = 0
    assert store.expired(agreed=False) == []
    assert take_all(store) == [b"%d" % number for number in range(MANY)]
    assert store.queue("q").ready == 0


def test_what_has_expired_is_told_once_the_clocks_have_agreed(node: StoreNode) -> None:
    store = node.store
    sent = send(store, b"one", expires=node.clock() + 1000)
    node.clock.now_ms += 1000
    assert (store.take("q", "h"), store.expired()) == (None, [])
    assert store.expired(agreed=False) == [(sent, "q")]
    node.clock.now_ms += AGREEMENT_MS - 1000
    assert store.expired() == [(sent, "q")]
    assert store.expire(sent, "q").wait() == 0
    assert bodies(store) == []


def test_a_clock_leap_that_lasts_expires_messages_and_one_that_is_taken_back_does_not(node: StoreNode) -> None:
    store = node.store
    node.clock.now_ms += AGREEMENT_MS
    assert store.expired() == []
    sent = send(store, b"one", expires=node.clock() + 10 * AGREEMENT_MS)
    node.clock.stepped_ms = LEAP_MS
    assert (store.take("q", "h"), store.expired()) == (None, [])
    node.clock.now_ms += AGREEMENT_MS - 1
    assert store.expired() == []
    node.clock.now_ms += 1
    assert store.expired() == [(sent, "q")]
    node.clock.stepped_ms = 0
    assert store.expired() == []
    assert take_all(store) == [b"one"]


def test_a_queue_that_goes_takes_with_it_what_was_hidden(node: StoreNode) -> None:
    store = node.store
    send_many(node, node.clock() + 1000)
    kept = send(store, b"kept", "r", expires=node.clock() + 1000)
    node.clock.stepped_ms = LEAP_MS
    for queue in ("q", "r"):
        assert store.take(queue, "h") is None
    store.destroy_queue("q").wait()
    node.clock.stepped_ms = 0
    store.tick()
    delivery = store.take("r", "h")
    assert delivery is not None
    assert delivery.message == kept
