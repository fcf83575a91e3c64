"""Much that is due at once becomes ready in bounded batches, the earliest first."""

from __future__ import annotations

from journal.store.model import Message
from journal.store.queues.tables import DUE_MAX
from journal.store.store import MessageStore
from tests.support.stores import StoreNode

COUNT = 2 * DUE_MAX + 50


def test_what_is_due_at_once_becomes_ready_in_batches(node: StoreNode, store: MessageStore) -> None:
    now = node.clock()
    for number in range(COUNT):
        store.send(Message("orders", due=now + COUNT - number), ["q"])
    store.flush().wait()
    node.clock.now_ms = now + COUNT
    made = []
    while 0 < store.next_due() <= node.clock():
        made.append(store.tick())
        assert store.queue("q").ready == sum(made)
        assert store.next_due() in (0, now + sum(made) + 1)
    assert made == [DUE_MAX, DUE_MAX, 50]
    assert store.next_due() == 0


def test_a_take_makes_no_more_than_a_batch_ready(node: StoreNode, store: MessageStore) -> None:
    for _ in range(COUNT):
        store.send(Message("orders", due=node.clock() + 1), ["q"])
    store.flush().wait()
    node.clock.now_ms += 1
    assert store.take("q", "h") is not None
    queue = store.queue("q")
    assert (queue.ready, queue.held, queue.scheduled) == (DUE_MAX - 1, 1, COUNT - DUE_MAX)
