"""What a task on an executor does: it reads one range of a shard, and makes rows of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from loaders.spark.read.fetching import fetched
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.ranges import ShardRange
from loaders.spark.read.row_batches import row_batch
from loaders.spark.read.schemas import ROW_TABLES, STATE_TABLES, arrow_schema
from loaders.spark.read.shard_state import shard_state
from loaders.spark.read.source import JournalIdentity
from loaders.spark.read.state_batches import state_batches
from loaders.spark.read.topic_records import raw_batch
from loaders.spark.read.wal_batches import WalBatches


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
        if options.table in STATE_TABLES:
            with shard_state(options.source, partition) as state:
                yield from state_batches(options.table, state, partition.shard, schema)
            return
        records = fetched(options.source, options.topic, partition)
        wal = WalBatches(options.table, schema, identity.uuid, identity.shards)
        for some in records:
            if options.table == "raw":
                yield raw_batch(some, schema)
            elif options.table in ROW_TABLES:
                yield row_batch(options.table, some, schema)[0]
            else:
                yield wal.rows(some)
