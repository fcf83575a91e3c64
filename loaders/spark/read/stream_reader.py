"""The journal as a stream: where each micro-batch begins and ends.

Spark keeps the offsets in the query's checkpoint, and asks again for what lies between two of them after a crash. So an
offset says which journal and which topic it is of, and a query that goes on notices a journal or a topic that was made
anew, and records that were trimmed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from journal.errors import ConfigError, GapError
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.range_reader import RangeReader
from loaders.spark.read.ranges import ShardPlaces, cut_ranges
from loaders.spark.read.source import control
from loaders.spark.read.start import readable_start

Offset = dict[str, Any]
"""An offset as Spark keeps it, in JSON: `journal` and `topic` are the ids of both, `shards` has the offset of each."""

_ANEW = "start the query with another checkpointLocation"
_LAGGING_S = 5.0
"""How long an end before a start may be the answer of a replica that lags behind."""
_PAUSE_S = 0.5


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the micro-batches of a query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._found = control(options.source)
        self._ranges = RangeReader(options, schema, self._found.identity)
        self._places = ShardPlaces(options, self._found)
        self._last: dict[int, int] | None = None
        """Where a query that reads what is available now ends; None for any other query."""

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins. Raises GapError if records from there on have been trimmed."""
        return self._offset(self._places.starts())

    def getDefaultReadLimit(self) -> ReadLimit:
        offsets_max = self._options.max_offsets
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the micro-batch that begins at `start` ends. A limit counts offsets. Raises GapError if committed
        records end before `start`."""
        starts = self._offsets(start)
        ends = self._last or self._ends()
        if any(end < starts[shard] for shard, end in ends.items()):
            ends = self._ends_behind(starts)
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return self._offset(ends)

    def reportLatestOffset(self) -> Offset:
        return self._offset(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._ends()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a micro-batch. Raises GapError if some of its records have been trimmed or are lost."""
        starts, ends, options = self._offsets(start), self._offsets(end), self._options
        bounds = self._places.asked_again()
        self._places.require_ends(ends, bounds)
        if options.topic == options.source.wal:
            readable_start(options.source, self._found.identity, starts, bounds, mend=_ANEW)
        return list(cut_ranges(starts, ends, options.partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._ranges.batches(partition)

    def stop(self) -> None:
        self._places.close()

    def _ends_behind(self, starts: Mapping[int, int]) -> dict[int, int]:
        """The ends, none of which is before its start. They are asked for again for a while, because a replica that
        lags behind may answer. Raises GapError if an end stays before its start."""
        until = time.monotonic() + _LAGGING_S
        while True:
            ends = self._ends()
            lost = next((shard for shard, end in ends.items() if end < starts[shard]), None)
            if lost is None:
                return ends
            if time.monotonic() >= until:
                raise GapError(
                    f"the end of what is committed went back, from {starts[lost]} to {ends[lost]}: records are lost",
                    topic=self._options.topic,
                    partition=lost,
                    offset=ends[lost],
                )
            time.sleep(_PAUSE_S)

    def _ends(self) -> dict[int, int]:
        return {shard: end for shard, (_, end) in self._places.asked_again().items()}

    def _offset(self, offsets: Mapping[int, int]) -> Offset:
        return {
            "journal": self._found.identity.uuid.hex(),
            "topic": self._places.topic_id(),
            "shards": {str(shard): offset for shard, offset in sorted(offsets.items())},
        }

    def _offsets(self, offset: Offset) -> dict[int, int]:
        """The offset of each shard. Raises GapError for an offset of another journal or topic, and ConfigError for one
        of other shards."""
        now, name = self._offset({}), self._options.source.journal
        if offset["journal"] != now["journal"]:
            raise GapError(f"journal {name} was made anew: its uuid was {offset['journal']}: {_ANEW}")
        if offset["topic"] != now["topic"]:
            raise GapError(f"{self._options.topic} was made anew: its id was {offset['topic']}: {_ANEW}")
        found = {int(shard): at for shard, at in offset["shards"].items()}
        if found.keys() != set(self._places.shards):
            raise ConfigError(f"the query has read the shards {sorted(found)}, which are not those of now: {_ANEW}")
        return found


def limited(starts: Mapping[int, int], ends: Mapping[int, int], offsets_max: int) -> dict[int, int]:
    """Ends of at most `offsets_max` offsets in all, which each shard shares by what it has."""
    total = sum(end - starts[shard] for shard, end in ends.items())
    if total <= offsets_max:
        return dict(ends)
    found: dict[int, int] = {}
    seen = given = 0
    for shard, end in ends.items():
        seen += end - starts[shard]
        share = seen * offsets_max // total - given
        found[shard] = starts[shard] + share
        given += share
    return found
