"""The bodies of durable messages. They are in memory only until the local copy has them, and are then read from the
copy when they are needed.

Each body is kept with the completion of its group. Once the copy has that group, its bodies are dropped from memory. If
the copy is so far behind that the bodies outgrow the cache, the bodies of deleted messages are dropped first, and then
the oldest durable ones. Those are then read from the WAL, at the offsets that the completion gives.

Hot path: bodies are added and dropped by group, in lists. Most messages are deleted before anybody needs their bodies,
so the index that finds a body is only made when one is needed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress

from journal.append.completion import Completion
from journal.errors import LocalStorageError
from journal.store.ports import StoreJournal
from journal.wire.ids import shard_of

_UNSWEPT_SHARE = 8
"""The share of the cache's bound from which on bodies of deleted messages are dropped. It is small, because memory that
is reused soon is faster."""
_SWEPT_AT_ONCE = 4
"""The number of groups that are searched for bodies of deleted messages when a group is added, or when there is no
room."""
_PASSED_AT_ONCE = 100
"""The number of groups that one step drops because the local copy has them."""
_INDEXED_AT_ONCE = 2000
"""The number of bodies that one step indexes."""
_PROBES = 8
"""The number of messages of a group that are looked up first. The group is searched early only if all of them are
deleted."""


StoredOf = Callable[[Sequence[int], bool], set[int]]
"""A function that takes ids of messages and returns the ids of those that still exist. It is called for messages whose
bodies were added to the cache before those of the last group.

Unless the second argument asks for an exact answer, the result may contain some deleted messages.
"""


class _Group:
    """The bodies that one group has stored."""

    __slots__ = ("bodies", "bytes", "completion", "found", "ids", "indexed")

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.ids: list[int] = []
        self.bodies: list[bytes] = []
        """The bodies of these ids, in the order of the ids; empty after they were dropped early."""
        self.bytes = 0
        self.indexed = 0
        """The number of ids, from the first on, that are in the index."""
        self.found: dict[int, bytes] = {}
        """The bodies that are in the index, by id."""


class BodyCache:
    """Bodies that the local copy may not have yet. Not thread-safe: the store's lock guards it."""

    def __init__(self, journal: StoreJournal, bytes_max: int, stored_of: StoredOf) -> None:
        self.bytes = 0
        self._journal = journal
        self._bytes_max = bytes_max
        self._stored_of = stored_of
        self._groups: deque[_Group] = deque()
        self._last: _Group | None = None
        """The last group. A body with the same completion joins it."""
        self._group_of: dict[int, _Group] = {}
        """The index: the group of each body."""
        self._swept = 0
        """The number of groups, from the first on, whose bodies of deleted messages were dropped."""
        self._shed = 0
        """The number of groups, from the first on, all of whose bodies were dropped."""

    def put(self, completion: Completion, body_id: int, body: bytes) -> None:
        """Keep a body that the group of `completion` stores."""
        group = self._last
        if group is None or group.completion is not completion:
            group = self._begin(completion)
        group.ids.append(body_id)
        group.bodies.append(body)
        self._count(group, len(body))

    def put_all(self, completion: Completion, body_ids: Sequence[int], bodies: Sequence[bytes], size: int) -> None:
        """`put` for many bodies, which have `size` bytes together."""
        group = self._last
        if group is None or group.completion is not completion:
            group = self._begin(completion)
        group.ids.extend(body_ids)
        group.bodies.extend(bodies)
        self._count(group, size)

    def _begin(self, completion: Completion) -> _Group:
        group = self._last = _Group(completion)
        self._groups.append(group)
        self._sweep_gone()
        return group

    def _count(self, group: _Group, size: int) -> None:
        group.bytes += size
        self.bytes += size
        if self.bytes > self._bytes_max:
            self._let_go()

    def get(self, body_id: int) -> bytes | None:
        group = self._find(body_id)
        return None if group is None else group.found.get(body_id)

    def stored_by(self, body_id: int) -> Completion | None:
        """The completion of a body's group, until the local copy is known to have the body."""
        group = self._find(body_id)
        return None if group is None else group.completion

    def _find(self, body_id: int) -> _Group | None:
        while not self.catch_up():
            pass
        return self._group_of.get(body_id)

    def catch_up(self) -> bool:
        """Index some more bodies; True once all are indexed. `get` and `stored_by` index the rest themselves."""
        missing: list[_Group] = []
        for group in reversed(self._groups):
            if group.indexed < len(group.ids):
                missing.append(group)
            elif group.ids:
                break  # all groups before this one are indexed, so only the newest bodies can be missing
        left = _INDEXED_AT_ONCE
        while missing and left > 0:
            group = missing.pop()
            left -= len(group.ids)
            self._index(group)
        return not missing

    def _index(self, group: _Group) -> None:
        ids = group.ids[group.indexed :]
        group.found.update(zip(ids, group.bodies[group.indexed :], strict=False))
        self._group_of.update(dict.fromkeys(ids, group))
        group.indexed = len(group.ids)

    def _forget(self, group: _Group, body_ids: Sequence[int]) -> None:
        """Remove bodies from the index, except those of ids that another message has now."""
        for body_id in body_ids:
            group.found.pop(body_id, None)
            if self._group_of.get(body_id) is group:
                del self._group_of[body_id]

    def pass_on(self) -> None:
        """Drop the bodies of some groups that the local copy has by now."""
        groups = self._groups
        for _ in range(_PASSED_AT_ONCE):
            if not (groups and groups[0].completion.done and self._is_passed(groups[0])):
                return
            group = groups.popleft()
            if group is self._last:
                self._last = None
            self._swept = max(0, self._swept - 1)
            self._shed = max(0, self._shed - 1)
            self._forget(group, group.ids[: group.indexed])
            self.bytes -= group.bytes

    def _is_passed(self, group: _Group) -> bool:
        offsets, applied = group.completion.offsets, self._journal.applied
        if offsets:
            return all(applied(shard) >= last for shard, (_, last) in offsets.items())
        # the group was written again after an error, so its offsets are not known
        try:
            return all(self._journal.read(body_id) is not None for body_id in self._stored_of(group.ids, True))
        except LocalStorageError:
            return False  # the copy is being opened again, for example

    def _let_go(self) -> None:
        """Drop durable bodies until the rest fits; bodies that are not durable yet stay."""
        self.pass_on()
        for _ in range(_SWEPT_AT_ONCE):
            if self._is_over(self._swept) and self._groups[self._swept] is not self._last:
                self._sweep(self._groups[self._swept])
        while self._is_over(self._shed):
            group = self._groups[self._shed]
            if group is self._last:
                self._last = None
            self._shed += 1
            self._swept = max(self._swept, self._shed)
            self.bytes -= group.bytes
            group.bytes = 0
            group.bodies.clear()
            group.found.clear()

    def _is_over(self, place: int) -> bool:
        """Whether bodies must be dropped, and those of the group with this index may be."""
        return self.bytes > self._bytes_max and place < len(self._groups) and self._groups[place].completion.done

    def _sweep_gone(self) -> None:
        """Drop the bodies of deleted messages, from the first groups on, up to a group whose messages still exist."""
        for _ in range(_SWEPT_AT_ONCE):
            group = self._groups[self._swept]
            if group is self._last or self.bytes <= self._bytes_max // _UNSWEPT_SHARE:
                return
            probes = group.ids[:: len(group.ids) // _PROBES + 1]
            if not group.completion.done or self._stored_of(probes, False):
                return
            self._sweep(group)

    def _sweep(self, group: _Group) -> None:
        """Drop a group's bodies of deleted messages. It is done once for each group, because a second search would cost
        too much."""
        if group.indexed:
            self._index(group)
        stored = self._stored_of(group.ids, False)
        self._forget(group, [body_id for body_id in group.ids[: group.indexed] if body_id not in stored])
        kept = [*map(stored.__contains__, group.ids)] if stored else ()
        self._swept += 1
        group.ids, group.bodies = [*compress(group.ids, kept)], [*compress(group.bodies, kept)]
        group.indexed = min(group.indexed, len(group.ids))
        size = sum(map(len, group.bodies))
        self.bytes += size - group.bytes
        group.bytes = size


def read_stored(
    journal: StoreJournal, body_id: int, stored_by: Completion | None, until_s: float | None = None
) -> bytes | None:
    """The data of a record from the local copy, or from the WAL while the copy does not have it; None if neither has it
    (yet).

    `stored_by` is the completion of the group that stored it, if the copy may not have it. `until_s`, a time of
    `time.monotonic`, is when waiting for the WAL ends.
    """
    data = journal.read(body_id)
    if data is not None or stored_by is None:
        return data
    offsets = stored_by.offsets.get(shard_of(body_id, journal.shards))
    if offsets is not None:
        timeout_s = 15.0 if until_s is None else max(0.0, until_s - time.monotonic())
        data = journal.read_at(body_id, offsets, timeout_s)
    return data if data is not None else journal.read(body_id)
