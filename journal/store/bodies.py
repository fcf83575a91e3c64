"""Bodies of durable messages: in memory only until the local copy has them, then read from it when they are asked for.

A message is stored with the completion of its group. Once the copy stands at or behind that group, its bodies go from
memory. When the copy is so far behind that they outgrow the cache, the oldest durable ones go earlier, and are read
from the log at the place that the completion names.

Hot path: a body is put in, and mostly taken out again by its message's acknowledgement before anything passed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from journal.completion import Completion
from journal.errors import LocalStorageError
from journal.store.ports import StoreJournal
from journal.wire.ids import shard_of


class _Group:
    """Bodies stored by one group; None for one that was let go early."""

    __slots__ = ("bodies", "completion")

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.bodies: dict[int, bytes | None] = {}


class BodyCache:
    """Bodies that the local copy may not have yet. Not thread-safe: the store's lock guards it."""

    def __init__(self, journal: StoreJournal, bytes_max: int) -> None:
        self.bytes = 0
        self._journal = journal
        self._bytes_max = bytes_max
        self._groups: deque[_Group] = deque()
        self._last: _Group | None = None
        self._group_of: dict[int, _Group] = {}
        self._shed = 0
        """How many of the first groups were let go early."""

    def put(self, completion: Completion, body_id: int, body: bytes) -> None:
        """Keep a body that the group of `completion` stores."""
        group = self._last
        if group is None or group.completion is not completion:
            group = self._begin(completion)
        group.bodies[body_id] = body
        self._group_of[body_id] = group
        self.bytes += len(body)
        if self.bytes > self._bytes_max:
            self._let_go()

    def put_all(self, completion: Completion, body_ids: Sequence[int], bodies: Sequence[bytes]) -> None:
        """`put` for many."""
        group = self._last
        if group is None or group.completion is not completion:
            group = self._begin(completion)
        group.bodies.update(zip(body_ids, bodies, strict=True))
        self._group_of.update(dict.fromkeys(body_ids, group))
        self.bytes += sum(map(len, bodies))
        if self.bytes > self._bytes_max:
            self._let_go()

    def _begin(self, completion: Completion) -> _Group:
        group = self._last = _Group(completion)
        self._groups.append(group)
        return group

    def get(self, body_id: int) -> bytes | None:
        group = self._group_of.get(body_id)
        return None if group is None else group.bodies[body_id]

    def stored_by(self, body_id: int) -> Completion | None:
        """The completion of its group, until the local copy is known to have it."""
        group = self._group_of.get(body_id)
        return None if group is None else group.completion

    def drop(self, body_id: int) -> None:
        """Its message is gone."""
        group = self._group_of.pop(body_id, None)
        if group is not None:
            self.bytes -= len(group.bodies.pop(body_id) or b"")

    def drop_all(self, body_ids: Sequence[int]) -> None:
        """`drop` for many."""
        left, take = 0, self._group_of.pop
        for body_id in body_ids:
            group = take(body_id, None)
            if group is not None:
                left += len(group.bodies.pop(body_id) or b"")
        self.bytes -= left

    def pass_on(self) -> None:
        """Let go of what the local copy has by now."""
        groups = self._groups
        while groups and groups[0].completion.done and self._is_passed(groups[0]):
            group = groups.popleft()
            if group is self._last:
                self._last = None
            self._shed = max(0, self._shed - 1)
            for body_id, body in group.bodies.items():
                del self._group_of[body_id]
                self.bytes -= len(body or b"")

    def _is_passed(self, group: _Group) -> bool:
        if not group.bodies:
            return True
        offsets, applied = group.completion.offsets, self._journal.applied
        if offsets:
            return all(applied(shard) >= last for shard, (_, last) in offsets.items())
        # written again after an error: nobody said where it is
        try:
            return all(self._journal.read(body_id) is not None for body_id in group.bodies)
        except LocalStorageError:
            return False  # the copy is being opened again, say

    def _let_go(self) -> None:
        """The oldest durable bodies, until the rest fits; those still on their way stay."""
        self.pass_on()
        while self.bytes > self._bytes_max and self._shed < len(self._groups):
            group = self._groups[self._shed]
            if not group.completion.done:
                return
            for body_id, body in group.bodies.items():
                self.bytes -= len(body or b"")
                group.bodies[body_id] = None
            self._shed += 1


def read_stored(
    journal: StoreJournal, body_id: int, stored_by: Completion | None, until_s: float | None = None
) -> bytes | None:
    """A record's data from the local copy, or from the log before the copy has it; None if neither does (yet).

    `stored_by` is the completion of the group that stored it, if the copy may not have it; `until_s` is a moment of
    `time.monotonic` until which to wait for the log.
    """
    data = journal.read(body_id)
    if data is not None or stored_by is None:
        return data
    offsets = stored_by.offsets.get(shard_of(body_id, journal.shards))
    if offsets is not None:
        timeout_s = 15.0 if until_s is None else max(0.0, until_s - time.monotonic())
        data = journal.read_at(body_id, offsets, timeout_s)
    return data if data is not None else journal.read(body_id)
