"""Bodies in memory only until the local copy has them, and read from the log when they had to go earlier."""

from __future__ import annotations

import pytest

from journal.completion import Completion, completed
from journal.errors import LocalStorageError
from journal.store.bodies import BodyCache, read_stored
from journal.store.model import Message
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, send


class CopyFake:
    """A journal whose local copy is as far as a test says. Of what a store asks, only reading back."""

    shards = 2
    current = True

    def __init__(self) -> None:
        self.copy: dict[int, bytes] = {}
        self.log: dict[tuple[int, int], dict[int, bytes]] = {}
        self.at = [-1, -1]

    def read(self, record_id: int) -> bytes | None:
        return self.copy.get(record_id)

    def read_at(self, record_id: int, offsets: tuple[int, int], timeout_s: float = 15.0) -> bytes | None:
        return self.log.get(offsets, {}).get(record_id)

    def applied(self, shard: int) -> int:
        return self.at[shard]


def durable(group: Completion, **shards: tuple[int, int]) -> None:
    """Resolve a group with the offsets of its shards."""
    group.offsets = {int(name[1:]): offsets for name, offsets in shards.items()}
    group.resolve()


@pytest.fixture
def fake() -> CopyFake:
    return CopyFake()


@pytest.fixture
def cache(fake: CopyFake) -> BodyCache:
    return BodyCache(fake, 100)  # type: ignore[arg-type]


def test_bodies_go_once_the_copy_stands_at_their_group_in_every_shard(fake: CopyFake, cache: BodyCache) -> None:
    group = Completion()
    cache.put(group, 2, b"x" * 30)
    cache.put(group, 3, b"y" * 30)
    durable(group, s0=(5, 6), s1=(9, 9))
    for at, left in (([5, 9], 60), ([6, 8], 60), ([6, 9], 0)):
        fake.at = at
        cache.pass_on()
        assert cache.bytes == left
    assert cache.get(2) is None


def test_over_the_bound_the_oldest_durable_ones_go(fake: CopyFake, cache: BodyCache) -> None:
    first, second = Completion(), Completion()
    cache.put(first, 2, b"x" * 80)
    cache.put(second, 4, b"y" * 80)
    assert cache.bytes == 160  # neither is durable
    durable(first, s0=(5, 5))
    cache.put(second, 6, b"z")
    assert (cache.bytes, cache.get(2), cache.get(4)) == (81, None, b"y" * 80)
    fake.log[5, 5] = {2: b"x" * 80}
    assert read_stored(fake, 2, cache.stored_by(2)) == b"x" * 80  # type: ignore[arg-type]
    fake.at = [5, 5]
    cache.pass_on()
    assert cache.stored_by(2) is None


def test_what_is_gone_takes_no_memory(cache: BodyCache) -> None:
    group = Completion()
    cache.put(group, 2, b"x" * 30)
    cache.drop(2)
    cache.drop(2)
    assert (cache.bytes, cache.get(2)) == (0, None)
    durable(group, s0=(5, 5))
    cache.pass_on()


def test_a_group_whose_place_nobody_said_stays_until_the_copy_has_each(fake: CopyFake, cache: BodyCache) -> None:
    cache.put(completed(), 2, b"x")
    cache.pass_on()
    assert cache.get(2) == b"x"
    fake.copy[2] = b"x"
    cache.pass_on()
    assert cache.bytes == 0


def test_bodies_stay_while_the_copy_cannot_be_read(
    fake: CopyFake, cache: BodyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reopened(_: int) -> bytes | None:
        raise LocalStorageError("the copy is being opened again")

    cache.put(completed(), 2, b"x" * 80)
    with monkeypatch.context() as patched:
        patched.setattr(fake, "read", reopened)
        cache.put(completed(), 4, b"y" * 80)
    assert cache.get(4) == b"y" * 80
    fake.copy = {2: b"x" * 80, 4: b"y" * 80}
    cache.pass_on()
    assert cache.bytes == 0


def test_a_store_keeps_no_bodies_that_its_journal_has(node: StoreNode, store: MessageStore) -> None:
    sent = [send(store, b"%d" % number * 100) for number in range(10)]
    assert store.cached_bytes == 0
    assert [store.message(each).body for each in sent] == [b"%d" % number * 100 for number in range(10)]
    with node.blocked_writer():
        pending = store.send(Message("orders", b"on its way"), ["q"])
        assert store.cached_bytes > 0
        assert store.message(pending.id).body == b"on its way"
