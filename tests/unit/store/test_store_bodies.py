"""Bodies in memory only until the local copy has them, and read from the log when they had to go earlier."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from journal.append.completion import Completion, completed
from journal.errors import LocalStorageError
from journal.store.bodies.cache import BodyCache, read_stored
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
def gone() -> set[int]:
    """Messages that are not there any more."""
    return set()


@pytest.fixture
def cache(fake: CopyFake, gone: set[int]) -> BodyCache:
    return BodyCache(fake, 100, lambda ids, _: {*ids} - gone)  # type: ignore[arg-type]


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


def test_bodies_over_the_bound_go_the_oldest_durable_ones_first(fake: CopyFake, cache: BodyCache) -> None:
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


def test_bodies_over_the_bound_go_those_of_deleted_messages_first(cache: BodyCache, gone: set[int]) -> None:
    groups = [Completion(), Completion(), Completion()]
    cache.put_all(groups[0], [2, 4], [b"a" * 40, b"b" * 5], 45)
    assert cache.get(4) == b"b" * 5
    cache.put_all(groups[1], [6, 8], [b"c" * 4, b"d" * 40], 44)
    for group, at in zip(groups, (5, 6, 7), strict=True):
        durable(group, s0=(at, at))
    gone |= {2, 8}
    cache.put(groups[2], 10, b"e" * 90)
    assert cache.bytes == 99
    assert [cache.get(each) for each in (2, 4, 6, 8, 10)] == [None, b"b" * 5, b"c" * 4, None, b"e" * 90]
    assert cache.stored_by(4) is groups[0]
    assert cache.stored_by(2) is None


def test_bodies_of_deleted_messages_take_no_memory_while_their_groups_wait_for_the_copy(
    cache: BodyCache, gone: set[int]
) -> None:
    for number in range(1, 41):
        group = Completion()
        cache.put_all(group, [2 * number, 2 * number + 1], [b"x" * 5, b"y" * 5], 10)
        durable(group, s0=(number, number))
        gone |= {2 * number, 2 * number + 1}
    assert cache.bytes <= 30  # an eighth of the bound, and the last groups


def test_one_more_body_costs_a_look_at_few_groups_however_many_wait(fake: CopyFake) -> None:
    asked: list[int] = []

    def nothing_is_there(ids: Sequence[int], _: bool) -> set[int]:
        asked.append(len(ids))
        return set()

    cache = BodyCache(fake, 10_000, nothing_is_there)  # type: ignore[arg-type]
    groups = [Completion() for _ in range(100)]
    for number, group in enumerate(groups):
        cache.put(group, 2 * number, b"x" * 90)
    for number, group in enumerate(groups):
        durable(group, s0=(number, number))
    looks = []
    for number in range(100, 140):
        asked.clear()
        cache.put(Completion(), 2 * number, b"y" * 200)
        looks.append(len(asked))
    assert 0 < max(looks) <= 20
    assert cache.bytes <= 10_000
    assert (cache.get(2), cache.get(278)) == (None, b"y" * 200)


def test_all_groups_of_before_are_found_though_some_were_swept_empty(cache: BodyCache, gone: set[int]) -> None:
    groups = [Completion(), Completion(), Completion()]
    first = [*range(101, 110)]
    cache.put_all(groups[0], first, [b"x"] * 9, 9)
    cache.put(groups[1], 4, b"y" * 20)
    for group, at in zip(groups, (5, 6, 7), strict=True):
        durable(group, s0=(at, at))
    gone |= {*first, 4} - {102}
    cache.put(groups[2], 6, b"z" * 10)
    assert [cache.get(each) for each in (101, 102, 4, 6)] == [None, b"x", None, b"z" * 10]


def test_a_group_still_in_use_is_searched_once_its_messages_are_gone(cache: BodyCache, gone: set[int]) -> None:
    groups = [Completion(), Completion(), Completion()]
    cache.put_all(groups[0], [2, 4], [b"x" * 10, b"y" * 10], 20)
    durable(groups[0], s0=(5, 5))
    gone.add(2)
    cache.put(groups[1], 6, b"z")
    assert (cache.bytes, cache.get(2), cache.get(4)) == (21, b"x" * 10, b"y" * 10)
    durable(groups[1], s0=(6, 6))
    gone.add(4)
    cache.put(groups[2], 8, b"z")
    assert (cache.bytes, cache.get(2), cache.get(4), cache.get(6)) == (2, None, None, b"z")


def test_a_group_that_is_on_its_way_is_not_looked_through(cache: BodyCache, gone: set[int]) -> None:
    group = Completion()
    cache.put(group, 2, b"x" * 20)
    gone.add(2)
    cache.put(Completion(), 4, b"z")
    assert (cache.bytes, cache.get(2)) == (21, b"x" * 20)
    durable(group, s0=(5, 5))
    cache.put(Completion(), 6, b"z")
    assert (cache.bytes, cache.get(2)) == (2, None)


def test_an_id_that_was_given_again_has_its_new_body_whatever_becomes_of_the_old_one(
    fake: CopyFake, cache: BodyCache
) -> None:
    first, second = Completion(), Completion()
    cache.put(first, 2, b"old")
    assert cache.get(2) == b"old"
    cache.put(second, 2, b"new")
    durable(first, s0=(5, 5))
    durable(second, s0=(6, 6))
    assert (cache.get(2), cache.stored_by(2)) == (b"new", second)
    fake.at = [5, -1]
    cache.pass_on()
    assert (cache.bytes, cache.get(2), cache.stored_by(2)) == (3, b"new", second)


def test_what_is_put_behind_a_group_that_had_to_go_is_the_body_that_was_put(cache: BodyCache) -> None:
    group = completed()
    group.offsets = {0: (5, 5)}
    cache.put_all(group, [2, 4], [b"x" * 60, b"y" * 60], 120)
    cache.put(group, 6, b"z")
    assert [cache.get(each) for each in (2, 4, 6)] == [None, None, b"z"]
    assert cache.stored_by(2) is cache.stored_by(6) is group
    assert cache.bytes == 1


def test_a_group_whose_place_nobody_said_stays_until_the_copy_has_each_that_is_there(
    fake: CopyFake, cache: BodyCache, gone: set[int]
) -> None:
    cache.put_all(completed(), [2, 4], [b"x", b"y"], 2)
    cache.pass_on()
    assert cache.get(2) == b"x"
    fake.copy[2] = b"x"
    cache.pass_on()
    assert cache.bytes == 2
    gone.add(4)
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
