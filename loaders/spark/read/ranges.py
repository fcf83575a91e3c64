"""What a batch reads: a range of offsets of each shard, cut into as many tasks as are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from journal.errors import ConfigError, GapError
from journal.kafka.cluster import KafkaCluster
from journal.kafka.readers import KafkaReader
from loaders.spark.read.filters import Narrowed, narrow_ranges
from loaders.spark.read.options import BEGINNING, EARLIEST_LEFT, ReadOptions
from loaders.spark.read.source import EARLIEST, Control, require_all_shards
from loaders.spark.read.start import readable_start

_MEND = "start=earliest takes what there is"


@dataclass(frozen=True)
class ShardRange(InputPartition):
    """The offsets of a shard that one task reads: from `start` to before `end`."""

    shard: int
    start: int
    end: int


class ShardPlaces:
    """The places that options name, as offsets. It keeps its clients, which must be closed, until they are used no
    more."""

    def __init__(self, options: ReadOptions, found: Control) -> None:
        self._options = options
        self._identity, self._begun = found.identity, found.begun
        self._reader: KafkaReader | None = None
        self._cluster: KafkaCluster | None = None

    @cached_property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """The first offset of each shard, and the end of what is committed, as they were when they were first asked
        for."""
        return self.asked_again()

    def asked_again(self) -> dict[int, tuple[int, int]]:
        """The bounds as they are now."""
        return self._open().bounds(list(self.shards), self._options.source.timeout_s)

    def topic_id(self) -> str:
        """The id of the topic that has the name now. Raises NoJournalError if there is none."""
        if self._cluster is None:
            self._cluster = self._options.source.kafka().cluster()
        found = self._cluster.topic_ids([self._options.topic], self._options.source.timeout_s)
        if not found:
            raise self._options.source.not_initialised()
        return found[self._options.topic]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._cluster is not None:
            self._cluster.close()

    def _open(self) -> KafkaReader:
        if self._reader is None:
            self._reader = self._options.source.kafka().reader(self._options.topic)
        return self._reader

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards to read. Raises ConfigError for one that the journal does not have."""
        count, wanted = self._identity.shards, self._options.shards
        if wanted is not None and wanted[-1] >= count:
            raise ConfigError(f"journal {self._options.source.journal} has the shards 0 to {count - 1}, not {wanted}")
        return wanted or tuple(range(count))

    def starts(self) -> dict[int, int]:
        """Where to begin. Raises GapError if records from there on have been trimmed."""
        place = self._options.start
        if isinstance(place, Mapping) or place == BEGINNING:
            return self._from_offsets(place if isinstance(place, Mapping) else None)
        if isinstance(place, datetime):
            return self.at(place)
        which = 0 if place == EARLIEST_LEFT else 1
        return {shard: bounds[which] for shard, bounds in self.bounds.items()}

    def ends(self) -> dict[int, int]:
        """Where to end. Raises GapError if the topic has less than the given offsets say."""
        place = self._options.end
        if isinstance(place, datetime):
            return self.at(place)
        if not isinstance(place, Mapping):
            return {shard: end for shard, (_, end) in self.bounds.items()}
        require_all_shards(self._identity, place, self.shards)
        self.require_ends(place, self.bounds)
        return {shard: place[shard] for shard in self.bounds}

    def require_ends(self, ends: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> None:
        """Raises GapError if committed records end before one of these ends."""
        for shard, end in ends.items():
            if shard in bounds and end > bounds[shard][1]:
                raise GapError(
                    f"records up to offset {end} were asked for, and committed ones end here",
                    topic=self._options.topic,
                    partition=shard,
                    offset=bounds[shard][1],
                )

    def _from_offsets(self, given: Mapping[int, int] | None) -> dict[int, int]:
        options, shards = self._options, self.bounds
        if given is not None:
            require_all_shards(self._identity, given, self.shards)
        if options.topic != options.source.wal:
            starts = given or dict.fromkeys(shards, EARLIEST)
            return {shard: starts[shard] if starts[shard] != EARLIEST else shards[shard][0] for shard in shards}
        return readable_start(options.source, self._identity, given, self.bounds, begun=self._begun, mend=_MEND)

    def at(self, time: datetime) -> dict[int, int]:
        """The first offset of each shard that has this time or a later one; its end if there is none."""
        milliseconds = int(time.timestamp() * 1000)
        found = self._open().at_time(milliseconds, list(self.bounds), self._options.source.timeout_s)
        return {shard: found.get(shard, end) for shard, (_, end) in self.bounds.items()}


def batch_ranges(options: ReadOptions, found: Control, left: Narrowed) -> list[ShardRange]:
    """The tasks of a batch, as far as filters leave any. Raises the errors of `ShardPlaces`."""
    places = ShardPlaces(options, found)
    try:
        starts, ends = places.starts(), places.ends()
        if left.since is not None:
            later = places.at(left.since)
            starts = {shard: max(start, later[shard]) for shard, start in starts.items()}
        return cut_ranges(*narrow_ranges(starts, ends, left), options.partitions)
    finally:
        places.close()


def cut_ranges(starts: Mapping[int, int], ends: Mapping[int, int], wanted: int | None) -> list[ShardRange]:
    """A range for each shard that has offsets, or about `wanted` of equal size if that is more."""
    sizes = {shard: end - starts[shard] for shard, end in ends.items() if end > starts[shard]}
    total = sum(sizes.values())
    parts = {shard: max(1, round((wanted or 0) * size / total)) for shard, size in sizes.items()}
    return [piece for shard, count in parts.items() for piece in _pieces(shard, starts[shard], sizes[shard], count)]


def _pieces(shard: int, start: int, size: int, count: int) -> Iterator[ShardRange]:
    cuts = [start + size * index // count for index in range(count + 1)]
    for begin, end in pairwise(cuts):
        if end > begin:
            yield ShardRange(shard, begin, end)
