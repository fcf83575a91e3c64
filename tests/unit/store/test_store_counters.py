"""What a store counts of each queue since the activation, and what it knows of holders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.store.address_settings import AddressSettings
from journal.store.model import Held, Message
from journal.store.queues.counters import HolderInfo, QueueCounts
from tests.support.stores import StoreNode, declare, send


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node") as running:
        declare(running.store, "dlq", "late", address="dead")
        declare(running.store, "q", "r", journaled_acquisition=True)
        yield running


def test_every_way_of_a_message_is_counted(node: StoreNode) -> None:
    store = node.store
    ids = [*store.send_all([Message("orders", b"%d" % n) for n in range(20)], ["q"]).wait()]
    store.acknowledge_all([Held("q", ids[:6])]).wait()
    taken = store.take_all("q", "h", 8)
    store.acknowledge(taken[0].message, "q", "h").wait()
    store.release_all([Held("q", [taken[1].message, taken[2].message], "h")]).wait()
    for left in store.reject([Held("q", [taken[3].message], "h")]).left:
        store.dead_letter(left.messages[0], "q").wait()
    store.expire(taken[4].message, "q").wait()
    store.move(taken[5].message, "q", "dead", ["dlq"], "why").wait()
    tx = store.begin()
    store.send(Message("orders", b"more"), ["q"], tx)
    store.acknowledge(taken[6].message, "q", "h", tx)
    store.dead_letter(ids[-1], "q", tx=tx)
    store.commit(tx).wait()
    store.purge("q").wait()
    assert store.counters("q") == QueueCounts(
        added=21, delivered=8, acknowledged=8, released=2, expired=1, dead=2, moved=1, dropped=8
    )
    assert store.queue("q").held == 1
    assert store.counters("dlq").added == 1
    assert node.crash().counters("q") == QueueCounts()


def test_a_dead_message_counts_the_deliveries_that_somebody_got(node: StoreNode) -> None:
    store = node.store
    store.set_address_settings("#", AddressSettings(deliveries_max=1)).wait()
    dead = [send(store, b"one"), send(store, b"two")]
    store.deliveries(dead[1], "q", 1).wait()
    store.take("q", "h")
    store.release(dead[0], "q", "h").wait()
    assert store.take("q", "h") is None
    assert store.counters("q") == QueueCounts(added=2, delivered=1, released=1)
    tx = store.begin()
    for message in dead:
        store.dead_letter(message, "q", tx=tx)
    store.prepare(tx).wait()
    store = node.crash()
    store.commit(tx).wait()
    assert store.counters("q") == QueueCounts(dead=2)


def test_holders_are_listed_with_their_last_act_and_stay_absent(node: StoreNode) -> None:
    store = node.store
    ids = [send(store, b"%d" % n) for n in range(4)]
    store.take_all("q", "h", 2)
    node.clock.now_ms += 500
    store.take_all("q", "i", 1)
    assert store.holding("q") == [HolderInfo("h", 2, node.clock() - 500), HolderInfo("i", 1, node.clock())]
    node.clock.now_ms += 500
    store.acknowledge(ids[0], "q", "h").wait()
    assert store.holding("q")[0] == HolderInfo("h", 1, node.clock())
    store.release(ids[2], "q", "i").wait()
    assert [each.holder for each in store.holding("q")] == ["h"]
    assert store.holding("r") == []
    store = node.crash()
    assert store.holding("q") == [HolderInfo("h", 1, 0)]
    node.clock.now_ms += node.settings.acquire_grace_ms
    store.tick()
    assert store.holding("q") == []
