"""The gate of an activation opens when every shard's mark has exactly the claim's epoch and nonce. Pure.

Workers write the marks: the activation's marker in a shard makes a checkpoint due at once
(`streams.worker.shard_frames`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from journal.append.writing import Claim
from journal.errors import FencedError
from journal.v1.journal_pb2 import Mark
from journal.wal.fencing import Standing, standing_of

AtGate = Callable[[Mapping[int, Mark]], None]
"""A callable that is told, again and again while a gate is shut, the marks of the shards that it waits for. An error
that it raises ends the activation. It must not block."""


def wait_on(waiting: Mapping[int, Mark]) -> None:
    """The `AtGate` that waits until the gate's time-out, whatever the reason for which the shards do not pass."""


class Gate:
    """Opens when the marks of all shards have exactly the epoch and nonce of `claim`: the tables then hold all that
    precedes the claim's markers.

    A larger epoch in any shard, or the same one with another nonce, belongs to another activation, and raises
    FencedError. It never counts as "at least ours".
    """

    def __init__(self, claim: Claim, shards: int) -> None:
        self._claim = claim
        self._shards = shards
        self._passed: frozenset[int] = frozenset()

    def offer(self, marks: Mapping[int, Mark]) -> bool:
        """Look at the newest marks. True once all shards stand at the epoch. Raises FencedError."""
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
        """The shards that have not passed."""
        return sorted(set(range(self._shards)) - self._passed)
