"""Reading ahead: the next batches are read and prepared while the shell applies the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from journal.errors import CorruptionError
from streams.reading.records import Record

Batches = Mapping[int, Sequence[Record]]


class Read(Protocol):
    async def __call__(self, shards: Collection[int], wait_ms: int) -> Batches:
        """Read one batch of each shard that has one; after `wait_ms` without any, the result is empty."""


class ReadAhead:
    """Reads ahead, one read at a time, in a task of its own. One event loop uses it."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._turn = 0
        self._reading: asyncio.Task[Batches] | None = None
        self._unwanted: set[int] = set()

    def begin(self, turn: int, shards: Collection[int], wait_ms: int) -> None:
        """Begin a read, unless one is under way. `turn` numbers the time between two rebalances, in which the shards
        stay the same."""
        if self._reading is None:
            self._turn = turn
            self._unwanted.clear()
            self._reading = asyncio.ensure_future(self._read(shards, wait_ms))

    async def take(self, turn: int, timeout_s: float) -> Batches:
        """The batches of the read that was begun, if it is of this turn; empty if it takes longer. Raises the error of
        the read, unless the error concerns a shard that was left out."""
        reading = self._reading
        if reading is None:
            return {}
        await asyncio.wait([reading], timeout=timeout_s)
        if not reading.done():
            return {}
        self._reading = None
        error = reading.exception()
        if self._turn != turn or (isinstance(error, CorruptionError) and error.partition in self._unwanted):
            return {}
        return {shard: records for shard, records in reading.result().items() if shard not in self._unwanted}

    async def leave_out(self, shards: Collection[int]) -> None:
        """Wait for a read under way, and drop its batches of these shards, because they are read from another offset
        now."""
        if self._reading is not None:
            self._unwanted.update(shards)
            await asyncio.wait([self._reading])

    def close(self) -> None:
        """Drop the read that is under way."""
        if self._reading is not None:
            self._reading.add_done_callback(_ended)
            self._reading.cancel()
            self._reading = None


def _ended(reading: asyncio.Task[Batches]) -> None:
    """Take the error of a read whose result nobody needs, so that asyncio does not log it."""
    if not reading.cancelled():
        reading.exception()
