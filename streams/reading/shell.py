"""The worker's shell, as whoever reads the WAL sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from journal.errors import CorruptionError
from streams.reading.records import Prepared


class WorkerShell(Protocol):
    """The worker's shell. All calls come from one thread, one after the other, and may block.

    A call that raises ends the worker, and nothing is called after it but `abandon`, not even `stop`.
    """

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        """Serve these shards and no others. The WAL offset to read each from; `seeks` tells those of shards left out,
        once they may be read."""

    def revoked(self, shards: Collection[int]) -> None:
        """Checkpoint what these shards have. `assigned` follows, which says whether they come back."""

    def frames(self, shard: int, records: Sequence[Prepared]) -> None:
        """Committed records of a shard in offset order, beginning where `assigned` said."""

    def unsorted(self) -> Collection[int]:
        """Shards whose records are wanted as they lie in the WAL; those of others may come sorted. What comes sorted
        all the same is not applied, and `seeks` asks for it again."""

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        """The shard cannot be read on; it is not, before `seeks` or `assigned` says from where."""

    def tick(self) -> float:
        """Checkpoint what is due. Seconds until this wants to be called again, unless there are frames before."""

    def seeks(self) -> Mapping[int, int]:
        """Shards to be read from another offset than the next, or from now on; asked for after each tick, told once."""

    def applied(self) -> Mapping[int, int]:
        """Per shard the next WAL offset after a committed mark; a shard stays named after it is gone."""

    def stop(self) -> None:
        """The final checkpoint; the last call but `abandon`."""

    def abandon(self) -> None:
        """End what goes on by itself, and wait for it. Called by whoever made the shell, from any thread, when the
        worker has ended, however it did."""
