"""What a task on an executor does: it reads one range of a shard, and makes rows of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from loaders.spark.read.options import ReadOptions
from loaders.spark.read.ranges import ShardRange
from loaders.spark.read.schemas import arrow_schema
from loaders.spark.read.source import JournalIdentity


class RangeReader:
    """Reads ranges. Spark sends it to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType, identity: JournalIdentity) -> None:
        self._options = options
        self._schema = schema
        self._identity = identity

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows. Spark makes a partition without a range if there are none."""
        # pandas, which what decodes brings with it, takes half a second to import; workers that plan do without it
        from loaders.spark.read.range_rows import rows_of_range

        if isinstance(partition, ShardRange):
            yield from rows_of_range(self._options, self._identity, arrow_schema(self._schema), partition)
