"""The gate of an activation: every shard's mark must stand at the activation's epoch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from journal.append.writing import Claim
from journal.errors import FencedError
from journal.v1.journal_pb2 import Mark
from journal.wal.fencing import Standing, standing_of

AtGate = Callable[[Mapping[int, Mark]], None]
"""Told while a gate is shut, again and again, the marks of the shards that it waits for. What it raises ends the
activation; it does not block."""


def wait_on(waiting: Mapping[int, Mark]) -> None:
    """Whatever keeps the shards, until the gate's time-out."""


class Gate:
    """Opens when the marks of all shards say exactly epoch and nonce of `claim`: then the tables hold all that precedes
    its markers.

    A larger epoch in any shard, or the same one with another nonce, is another activation's, never "at least ours":
    FencedError.
    """

    def __init__(self, claim: Claim, shards: int) -> None:
        self._claim = claim
        self._shards = shards
        self._passed: frozenset[int] = frozenset()

    def offer(self, marks: Mapping[int, Mark]) -> bool:
        """Look at the newest marks; True once all shards stand at the epoch. Raises FencedError."""
        standings = {shard: standing_of(self._claim, mark) for shard, mark in marks.items()}
        for shard, standing in standings.items():
            if standing is Standing.NEWER:
                epoch = marks[shard].epoch
                raise FencedError(
                    f"shard {shard} stands at epoch {epoch} of another activation, while epoch {self._claim.epoch} was "
                    "activating",
                    epoch=epoch,
                )
        self._passed = frozenset(shard for shard, standing in standings.items() if standing is Standing.OWN)
        return len(self._passed) == self._shards

    def waiting(self) -> list[int]:
        """Shards that have not passed."""
        return sorted(set(range(self._shards)) - self._passed)
