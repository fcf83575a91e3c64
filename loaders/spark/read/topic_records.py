"""Some records of a topic as columns, and the columns of Spark's tables that say where a record stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from loaders.spark.read.decoding import Numbers

_TIME = pa.timestamp("us", "UTC")


class TopicRecords(NamedTuple):
    """Some records of a topic, as columns."""

    topic: str | pa.Array
    """The topic of all of them, or of each."""
    shards: Numbers
    offsets: Numbers
    timestamps_ms: Numbers
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


def as_topic_records(batch: pa.RecordBatch) -> TopicRecords:
    """Records in Kafka's columns, as Spark gives them."""
    return TopicRecords(
        batch["topic"],
        batch["partition"].to_numpy(),
        batch["offset"].to_numpy(),
        batch["timestamp"].cast(pa.int64()).to_numpy() // 1000,
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
    )


def raw_batch(records: TopicRecords, schema: pa.Schema) -> pa.RecordBatch:
    """The records as they are."""
    columns = [TOPIC_COLUMNS[name](records) for name in schema.names]
    return pa.record_batch(columns, schema=schema)


TOPIC_COLUMNS: Mapping[str, Callable[[TopicRecords], pa.Array]] = {
    "topic": lambda records: _topics(records),
    "shard": lambda records: pa.array(records.shards, pa.int32()),
    "partition": lambda records: pa.array(records.shards, pa.int32()),
    "offset": lambda records: pa.array(records.offsets, pa.int64()),
    "appended": lambda records: pa.array(records.timestamps_ms * 1000, pa.int64()).cast(_TIME),
    "timestamp": lambda records: pa.array(records.timestamps_ms * 1000, pa.int64()).cast(_TIME),
    "key": lambda records: pa.array(records.keys, pa.binary()),
    "value": lambda records: pa.array(records.values, pa.binary()),
}


def _topics(records: TopicRecords) -> pa.Array:
    return pa.repeat(records.topic, len(records.offsets)) if isinstance(records.topic, str) else records.topic
