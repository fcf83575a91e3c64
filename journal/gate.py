"""The gate of an activation: every shard's mark must stand at the activation's epoch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from journal.errors import FencedError
from journal.v1.journal_pb2 import Mark

AtGate = Callable[[Mapping[int, Mark]], None]
"""Told while a gate is shut, again and again, the marks of the shards that it waits for. What it raises ends the
activation; it does not block."""


def wait_on(waiting: Mapping[int, Mark]) -> None:
    """Whatever keeps the shards, until the gate's time-out."""


class Gate:
    """Opens when the marks of all shards say exactly `epoch`: then the tables hold all that precedes its markers.

    A larger epoch in any shard is another node's activation, never "at least ours": FencedError.
    """

    def __init__(self, epoch: int, shards: int) -> None:
        self._epoch = epoch
        self._shards = shards
        self._passed: frozenset[int] = frozenset()

    def offer(self, marks: Mapping[int, Mark]) -> bool:
        """Look at the newest marks; True once all shards stand at the epoch. Raises FencedError."""
        newer = max((mark.epoch for mark in marks.values()), default=0)
        if newer > self._epoch:
            raise FencedError(f"epoch {newer} began while epoch {self._epoch} was activating", epoch=newer)
        self._passed = frozenset(shard for shard, mark in marks.items() if mark.epoch == self._epoch)
        return len(self._passed) == self._shards

    def waiting(self) -> list[int]:
        """Shards that have not passed."""
        return sorted(set(range(self._shards)) - self._passed)
