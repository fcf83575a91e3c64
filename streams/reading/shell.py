"""The worker's shell, as the code that reads the WAL calls it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from journal.errors import CorruptionError
from streams.reading.records import Record


class WorkerShell(Protocol):
    """The worker's shell. All calls come from one thread, one after the other, and may block.

    If a call raises an error, the worker ends. After that only `abandon` is called, not even `stop`.
    """

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        """Serve these shards and no others. Returns the WAL offset from which to read each shard that is ready; `seeks`
        gives the others later."""

    def revoked(self, shards: Collection[int]) -> None:
        """Checkpoint the frames gathered for these shards. The next `assigned` says whether the shards come back."""

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        """Apply committed records of a shard, in offset order, from the offset that `assigned` or `seeks` gave."""

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        """Note that the shard cannot be read on. It is not read again until `seeks` or `assigned` gives an offset."""

    def tick(self) -> float:
        """Make the checkpoints that are due. Returns the seconds until the next call, if no frames come before."""

    def seeks(self) -> Mapping[int, int]:
        """Shards that must be read from another offset than the next one, or that can be read from now on. The caller
        asks after each tick, and each answer is given once."""

    def applied(self) -> Mapping[int, int]:
        """The next WAL offset after the committed mark of each shard, also of shards that are gone."""

    def stop(self) -> None:
        """Make the final checkpoints. Only `abandon` may follow."""

    def abandon(self) -> None:
        """End all that runs in the background, and wait for it. The owner of the shell calls it in any thread when the
        worker has ended, with or without an error."""
