"""What a task on an executor does: it reads one range of a shard, and makes rows of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from loaders.spark.read.fetching import fetched
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.ranges import ShardRange
from loaders.spark.read.schemas import arrow_schema
from loaders.spark.read.source import JournalIdentity
from loaders.spark.read.wal_batches import WalBatches, raw_batch


class RangeReader:
    """Reads ranges. Spark sends it to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType, identity: JournalIdentity) -> None:
        self._options = options
        self._schema = schema
        self._identity = identity

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows. Spark makes a partition without a range if there are none."""
        if not isinstance(partition, ShardRange):
            return
        options, identity, schema = self._options, self._identity, arrow_schema(self._schema)
        records = fetched(options.source, options.topic, partition)
        if options.table == "raw":
            for some in records:
                yield raw_batch(some, schema)
            return
        wal = WalBatches(options.table, schema, identity.uuid, identity.shards)
        for some in records:
            yield wal.rows(some)
