"""What the readers of workers do with records on their way: by chance, a batch of a shard comes sorted."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from journal.errors import FrameError
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from streams.reading.records import Prepared, Record
from tests.simulation.setting import UUID


class Sorting:
    """The readers of one seed. Their chance is their own: it leaves a seed's life what it was without them."""

    def __init__(self, chance: Random, shards: int) -> None:
        self._chance = chance
        self._share = chance.choice((0.5, 0.9, 1.0))
        self._shards = shards

    def prepare(self, shard: int, records: Sequence[Record]) -> list[Prepared]:
        """A batch of a shard that takes sorted ones. What is no frame goes on as it is."""
        if self._chance.random() >= self._share:
            return list(records)
        return [(offset, timestamp, self._sorted(shard, offset, value)) for offset, timestamp, value in records]

    def _sorted(self, shard: int, offset: int, value: bytes) -> bytes | SortedFrame:
        try:
            return _received(sort_frame(value, offset, UUID, shard, self._shards))
        except FrameError:
            return value


def _received(frame: SortedFrame) -> SortedFrame:
    """The frame as it comes from another process: ids are bytes."""
    return frame._replace(
        runs=[
            run._replace(added=bytes(run.added), updated=bytes(run.updated), deleted=bytes(run.deleted))
            for run in frame.runs
        ]
    )
