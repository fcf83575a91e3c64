"""The data source `kafka_journal`: a journal's topics as tables for Spark, read by confluent-kafka in Python's workers.

    spark.dataSource.register(KafkaJournal)
    spark.read.format("kafka_journal").option("bootstrap_servers", …).option("journal", …).option("table", …).load()

Spark makes a reader in a worker beside the driver, which asks it for the ranges to read, and sends it to the executors
with one range each. Executors need this package, confluent-kafka, numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from journal.errors import ConfigError
from loaders.spark.read.filters import Narrowed, narrowed
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.range_reader import RangeReader
from loaders.spark.read.ranges import batch_ranges
from loaders.spark.read.schemas import STATE_TABLES, table_schema
from loaders.spark.read.source import control
from loaders.spark.read.stream_reader import StreamReader

FORMAT_NAME = "kafka_journal"


class KafkaJournal(DataSource):
    """A journal as a data source of Spark."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> StructType:
        """The columns of the table. Raises ConfigError for options that cannot be, and the errors of `control`."""
        options = ReadOptions.parse(self.options)
        control(options.source)
        return table_schema(options.table, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.parse(self.options)
        return FilteringReader(options, schema) if options.filters else BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = ReadOptions.parse(self.options)
        if options.table in STATE_TABLES:
            raise ConfigError(f"table {options.table} is a state and cannot be streamed: stream table changes")
        return StreamReader(options, schema)


class BatchReader(DataSourceReader):
    """Reads what is there when Spark plans the query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._found = control(options.source)
        self._ranges = RangeReader(options, schema, self._found.identity)

        self._left = Narrowed()
        """The part that filters leave."""

    def partitions(self) -> list[InputPartition]:
        return list(batch_ranges(self._options, self._found, self._left))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._ranges.batches(partition)


class FilteringReader(BatchReader):
    """Reads what is there when Spark plans the query, as far as the query's filters leave it. Spark refuses it unless
    spark.sql.python.filterPushdown.enabled is set."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        if self._options.table not in STATE_TABLES:
            self._left = narrowed(filters)
        return filters
