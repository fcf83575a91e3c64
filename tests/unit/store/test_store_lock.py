"""No work that grows with a queue, or with the number of queues, is done in one go while others wait for the store.

It is counted, not timed: how many instructions of Python's machine the longest hold of the store's lock takes. (What
the machine does in one instruction, to copy numbers, say, is not seen: some nanoseconds for each.)
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from journal.errors import MessageMissingError
from journal.store.chain.chain import MessageStoreChain
from journal.store.model import Message, QueueConfig
from journal.store.settings import StoreSettings
from tests.support.stores import StoreNode, declare

FEW, MANY = 260, 780
"""A step is less than the first. What the writer has done meanwhile falls into one step or another."""
SETTINGS = StoreSettings(expiry_agreement_ms=0, collect_operations_max=FEW // 4)


class CountedLock:
    """A reentrant lock that counts the instructions of the thread that holds it, while it is told to."""

    def __init__(self) -> None:
        self._lock = threading._RLock()  # type: ignore[attr-defined]
        self._depth = 0
        self._held = 0
        self.counts = False
        self.longest = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._held = 0

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self.counts:
            self.longest = max(self.longest, self._held)
        self._lock.release()

    acquire = __enter__
    release = __exit__

    def trace(self, frame: FrameType, _: str, __: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._count

    def _count(self, _: FrameType, event: str, __: Any) -> Any:
        self._held += event == "opcode"
        return self._count

    def longest_of(self, act: Callable[[], object]) -> int:
        self.counts, self.longest = True, 0
        sys.settrace(self.trace)
        try:
            act()
        finally:
            sys.settrace(None)
            self.counts = False
        return self.longest


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CountedLock]]:
    """Those of the stores that are made, in order."""
    made: list[CountedLock] = []

    def make() -> CountedLock:
        made.append(CountedLock())
        return made[-1]

    monkeypatch.setattr("journal.store.operations.core.threading.RLock", make)
    return made


def fill(node: StoreNode, count: int, **message: Any) -> list[int]:
    sent = node.store.send_all([Message("orders", b"", **message) for _ in range(count)], ["q"])
    sent.wait(30)
    node.store.next_due()  # what has become durable is in its queues
    return [*sent.ids]


def hold(node: StoreNode, count: int) -> None:
    fill(node, count)
    for _ in range(count):
        node.store.take("q", "h")
    node.store.flush().wait(30)


def scheduled(node: StoreNode, count: int) -> None:
    fill(node, count, due=node.clock() + 5)
    node.clock.now_ms += 5


def expired(node: StoreNode, count: int) -> None:
    fill(node, count, expires=node.clock() + 5)
    node.clock.now_ms += 5


def held_before(node: StoreNode, count: int) -> None:
    hold(node, count)
    node.crash()


def held_over(node: StoreNode, count: int) -> None:
    held_before(node, count)
    node.clock.now_ms += node.settings.acquire_grace_ms


def many_queues(node: StoreNode, count: int) -> None:
    declare(node.store, "dead", address="dead")
    node.store.create_queue(QueueConfig("d", "orders", dead_letter_address="dead"))
    for number in range(count // 3):
        node.store.create_address(f"a{number}")
        node.store.create_queue(QueueConfig(f"q{number}", f"a{number}"))
    node.store.send(Message("orders", b""), ["d"]).wait(30)


def unrouted(node: StoreNode, count: int) -> None:
    node.store.create_address("spare")
    node.store.send_all([Message("spare", b"") for _ in range(count)], []).wait(30)


def destroyed_in_a_transaction(node: StoreNode, count: int) -> None:
    fill(node, count)
    node.store.destroy_queue("q", tx=node.store.begin(7))


ACTS: dict[str, tuple[Callable[[StoreNode, int], object], Callable[[StoreNode], object]]] = {
    "browse-one-of-many-held": (hold, lambda node: [*node.store.browse("q", 1)]),
    "browse-all-held": (hold, lambda node: [*node.store.browse("q")]),
    "browse-all-ready": (fill, lambda node: [*node.store.browse("q")]),
    "release_holder": (hold, lambda node: node.store.release_holder("h").wait(30)),
    "dead_letter": (many_queues, lambda node: node.store.dead_letter(next(node.store.browse("d")).message, "d")),
    "reattach": (held_before, lambda node: node.store.reattach("h")),
    "destroy_queue-of-many-ready": (fill, lambda node: node.store.destroy_queue("q").wait(30)),
    "destroy_queue-of-many-held": (hold, lambda node: node.store.destroy_queue("q").wait(30)),
    "destroy_address-of-many-unrouted": (unrouted, lambda node: node.store.destroy_address("spare").wait(30)),
    "commit-that-destroys": (destroyed_in_a_transaction, lambda node: node.store.commit(7).wait(30)),
    "queues": (many_queues, lambda node: node.store.queues()),
    "addresses": (many_queues, lambda node: node.store.addresses()),
    "take-of-what-is-due": (scheduled, lambda node: node.store.take("q", "h")),
    "take-behind-the-expired": (expired, lambda node: node.store.take("q", "h")),
    "expired": (expired, lambda node: node.store.expired(agreed=False, limit=10_000)),
    "tick-after-the-grace": (held_over, lambda node: node.store.tick()),
    "look-after-the-grace": (held_over, lambda node: node.store.holders()),
}


@pytest.mark.parametrize("what", ACTS)
def test_the_longest_hold_of_the_lock_does_not_grow(tmp_path: Path, locks: list[CountedLock], what: str) -> None:
    prepare, act = ACTS[what]
    longest = []
    for count in (FEW, MANY):
        with StoreNode(tmp_path / str(count), SETTINGS) as node:
            declare(node.store, "q")
            prepare(node, count)
            longest.append(locks[-1].longest_of(lambda node=node: act(node)))  # type: ignore[misc]
    assert 0 < longest[1] < 1.8 * longest[0] + 500


def hold_of_chain(chain: MessageStoreChain, count: int) -> None:
    chain.send_all([Message("orders", b"") for _ in range(count)], ["q"]).wait(30)
    assert None not in [chain.take("q", "h") for _ in range(count)]


def unrouted_of_chain(chain: MessageStoreChain, count: int) -> None:
    chain.create_address("spare").wait(30)
    chain.send_all([Message("spare", b"") for _ in range(count)], []).wait(30)


def destroyed_in_a_transaction_of_chain(chain: MessageStoreChain, count: int) -> None:
    chain.send_all([Message("orders", b"") for _ in range(count)], ["q"]).wait(30)
    chain.destroy_queue("q", tx=chain.begin())


CHAIN_ACTS: dict[str, tuple[Callable[[MessageStoreChain, int], object], Callable[[MessageStoreChain], object]]] = {
    "release_holder": (hold_of_chain, lambda chain: chain.release_holder("h").wait(30)),
    "reattach": (hold_of_chain, lambda chain: chain.reattach("h")),
    "destroy_queue": (hold_of_chain, lambda chain: chain.destroy_queue("q").wait(30)),
    "destroy_address": (unrouted_of_chain, lambda chain: chain.destroy_address("spare").wait(30)),
    "commit-that-destroys": (
        destroyed_in_a_transaction_of_chain,
        lambda chain: chain.commit(chain.transactions()[0].tx).wait(30),
    ),
}


@pytest.mark.parametrize("what", CHAIN_ACTS)
def test_the_longest_hold_of_a_chains_lock_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    prepare, act = CHAIN_ACTS[what]
    longest = []
    for count in (FEW, MANY):
        with ExitStack() as opened:
            nodes = [opened.enter_context(StoreNode(tmp_path / f"{name}-{count}", SETTINGS)) for name in "ab"]
            lock = CountedLock()
            with monkeypatch.context() as patched:
                patched.setattr("journal.append.callbacks.threading.Lock", lambda lock=lock: lock)
                chain = MessageStoreChain([node.store for node in nodes])
            declare(chain, "q")
            prepare(chain, count)
            chain.flush().wait(30)
            longest.append(lock.longest_of(lambda chain=chain: act(chain)))  # type: ignore[misc]
            chain.release_holder("h").wait(30)
            chain.flush().wait(30)
            assert [node.store.holders() for node in nodes] == [[], []]
    assert 0 < longest[1] < 1.8 * longest[0] + 500


def test_a_queue_that_changes_while_it_is_looked_through_is_told_without_what_has_gone(
    tmp_path: Path, locks: list[CountedLock]
) -> None:
    with StoreNode(tmp_path) as node:
        declare(node.store, "q")
        sent = fill(node, 900)
        store, seen = node.store, []
        held = [store.take("q", "h") for _ in range(300)]
        assert len(held) == 300
        state = node.loader.loaded.state
        for info in state.browse(store.queue("q").record_id):
            seen.append(info.message)
            if info.message == sent[100]:
                for message in (*sent[50:150], *sent[800:]):
                    store.acknowledge(message, "q", "h" if message in sent[:300] else "")
                store.release_holder("h")
                store.flush().wait(30)
                fill(node, 200)
        assert seen == [*sorted(set(seen), key=sent.index)]
        assert set(seen) <= set(sent)
        assert {*sent[:50], *sent[300:800]} <= set(seen)
        with pytest.raises(MessageMissingError):
            store.message(sent[60])
