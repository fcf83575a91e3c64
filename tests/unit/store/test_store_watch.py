"""Whoever waits for a queue is told once when it has something, whatever the cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from journal.store.model import Message, QueueConfig
from journal.store.queues.tables import PASSED_MAX
from journal.store.store import MessageStore
from tests.support.references import MemoryIndex
from tests.support.stores import StoreNode, declare


class Watching:
    """Counts how often the store calls."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.calls = 0
        store.watch(self.called)

    def called(self) -> None:
        self.calls += 1

    def woken(self, cause: Callable[[], object]) -> tuple[int, list[str]]:
        """The calls that a cause makes, and the queues that have something then."""
        self.calls = 0
        cause()
        self.store.flush().wait(30)
        calls = self.calls
        return calls, self.store.woken()


@pytest.fixture
def watching(node: StoreNode) -> Watching:
    return Watching(node.store)


def emptied(store: MessageStore, queue: str = "q") -> None:
    """A take that finds nothing: somebody waits from now on."""
    assert store.take_all(queue, "waiting", 10) == []


def sent(store: MessageStore, **fields: object) -> int:
    return store.send(Message("orders", b"x", **fields), ["q"]).wait(30)  # type: ignore[arg-type]


def test_nobody_is_called_for_a_queue_that_nobody_waits_for(watching: Watching) -> None:
    assert watching.woken(lambda: sent(watching.store)) == (0, [])


def test_an_arrival_wakes_once_until_somebody_looks(watching: Watching) -> None:
    store = watching.store
    emptied(store)
    assert watching.woken(lambda: [sent(store) for _ in range(3)]) == (1, ["q"])
    assert watching.woken(lambda: sent(store)) == (0, [])
    assert len(store.take_all("q", "one", 10)) == 4
    assert watching.woken(lambda: sent(store)) == (1, ["q"])


def test_a_run_of_messages_wakes_and_so_does_one_that_is_not_durable(watching: Watching) -> None:
    store = watching.store
    emptied(store)
    several = [Message("orders", b"x") for _ in range(5)]
    assert watching.woken(lambda: store.send_all(several, ["q"]).wait(30)) == (1, ["q"])
    store.take_all("q", "one", 10)
    assert watching.woken(lambda: sent(store, durable=False)) == (1, ["q"])


def test_what_is_given_back_wakes(watching: Watching) -> None:
    store = watching.store
    message = sent(store)
    assert [each.message for each in store.take_all("q", "one", 10)] == [message]
    assert watching.woken(lambda: store.release(message, "q", "one")) == (1, ["q"])
    store.take_all("q", "one", 10)
    assert watching.woken(lambda: store.release_holder("one")) == (1, ["q"])


def test_what_is_due_wakes_at_the_tick(node: StoreNode, watching: Watching) -> None:
    store = watching.store
    emptied(store)
    calls, names = watching.woken(lambda: sent(store, due=node.clock() + 1000))
    assert (calls, names, store.next_due()) == (1, [], node.clock() + 1000)
    node.clock.now_ms += 1000
    assert watching.woken(store.tick) == (1, ["q"])


def test_what_changes_the_next_due_time_is_told_without_the_name_of_a_queue(
    node: StoreNode, watching: Watching
) -> None:
    store = watching.store
    emptied(store)
    later = node.clock() + 1000
    assert watching.woken(lambda: sent(store, due=later, durable=False)) == (1, [])
    (message,) = [each.message for each in store.browse("q")]
    assert watching.woken(lambda: store.schedule(message, "q", later - 500)) == (1, [])
    assert store.next_due() == later - 500


def test_a_commit_and_a_rollback_wake(watching: Watching) -> None:
    store = watching.store
    emptied(store)
    tx = store.begin()
    store.send(Message("orders", b"x"), ["q"], tx)
    assert watching.woken(lambda: store.commit(tx).wait(30)) == (1, ["q"])
    (taken,) = store.take_all("q", "one", 10)
    assert watching.woken(lambda: store.release(taken.message, "q", "one")) == (1, ["q"])
    tx = store.begin()
    store.acknowledge(taken.message, "q", tx=tx)
    emptied(store)
    assert watching.woken(lambda: store.rollback(tx).wait(30)) == (1, ["q"])


def test_a_queue_that_is_resumed_wakes_and_one_that_is_gone(watching: Watching) -> None:
    store = watching.store
    sent(store)
    store.pause("q").wait(30)
    emptied(store)
    assert watching.woken(lambda: store.resume("q").wait(30)) == (1, ["q"])
    store.create_queue(QueueConfig("other", "orders")).wait(30)
    emptied(store, "other")
    assert watching.woken(lambda: store.destroy_queue("other").wait(30)) == (1, ["other"])


def test_a_change_of_settings_wakes(watching: Watching) -> None:
    store = watching.store
    emptied(store)
    config = replace(store.queue("q").config, deliveries_max=5)
    assert watching.woken(lambda: store.change_queue(config).wait(30)) == (1, ["q"])


def test_a_message_behind_many_expired_ones_wakes_at_the_tick(node: StoreNode, watching: Watching) -> None:
    store = watching.store
    expired = [Message("orders", b"x", expires=node.clock() + 1) for _ in range(PASSED_MAX + 1)]
    store.send_all(expired, ["q"]).wait(30)
    sent(store)
    node.clock.now_ms += 5
    emptied(store)
    assert watching.woken(store.tick) == (1, ["q"])


def test_what_had_expired_in_the_index_wakes_if_the_clock_is_set_back(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "paged", in_memory=(0, 0), index=MemoryIndex) as node:
        declare(node.store, "q")
        watching = Watching(node.store)
        sent(node.store, expires=node.clock() + 1)
        node.clock.stepped_ms += 5
        emptied(node.store)
        node.clock.stepped_ms -= 5
        assert watching.woken(node.store.tick) == (1, ["q"])
