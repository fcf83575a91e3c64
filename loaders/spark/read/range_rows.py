"""The rows of one range of a shard, whichever the table is. Only tasks that read import this file and what decodes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from loaders.spark.read.fetching import fetched
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.ranges import ShardRange
from loaders.spark.read.row_batches import row_batch
from loaders.spark.read.schemas import ROW_TABLES, STATE_TABLES
from loaders.spark.read.shard_state import shard_state
from loaders.spark.read.source import JournalIdentity
from loaders.spark.read.state_batches import state_batches
from loaders.spark.read.wal_batches import WalBatches


def rows_of_range(
    options: ReadOptions, identity: JournalIdentity, schema: pa.Schema, of: ShardRange
) -> Iterator[pa.RecordBatch]:
    """The rows of the table that `options` name, with the columns of `schema`."""
    if options.table in STATE_TABLES:
        with shard_state(options.source, of) as state:
            yield from state_batches(options.table, state, of.shard, schema)
        return
    wal = WalBatches(options.table, schema, identity)
    for records in fetched(options.source, options.topic, of):
        if options.table in ROW_TABLES:
            yield row_batch(options.table, records, schema)
        else:
            yield wal.rows(records)
