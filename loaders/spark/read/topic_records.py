"""Some records of a topic as columns, and the columns of Spark's tables that say where a record stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from loaders.spark.read.decoding import Numbers

_TIME = pa.timestamp("us", "UTC")


class TopicRecords(NamedTuple):
    """Some records of a topic, as columns."""

    topic: str
    shards: Numbers
    offsets: Numbers
    timestamps_ms: Numbers
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


TOPIC_COLUMNS: Mapping[str, Callable[[TopicRecords], pa.Array]] = {
    "topic": lambda records: pa.repeat(records.topic, len(records.offsets)),
    "shard": lambda records: pa.array(records.shards, pa.int32()),
    "partition": lambda records: pa.array(records.shards, pa.int32()),
    "offset": lambda records: pa.array(records.offsets, pa.int64()),
    "appended": lambda records: pa.array(records.timestamps_ms * 1000, pa.int64()).cast(_TIME),
    "timestamp": lambda records: pa.array(records.timestamps_ms * 1000, pa.int64()).cast(_TIME),
    "key": lambda records: pa.array(records.keys, pa.binary()),
    "value": lambda records: pa.array(records.values, pa.binary()),
}
