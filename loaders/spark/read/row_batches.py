"""Records of a table topic become Arrow batches: rows of one of the tables of `schemas.ROW_TABLES`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from loaders.spark.read.row_decoding import Row, decoded_row, row_column
from loaders.spark.read.topic_records import TOPIC_COLUMNS, TopicRecords

_BESIDE = {"written": "timestamp"}
"""Names of columns of a record that are others in the topic."""


def row_batch(table: str, records: TopicRecords, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of these records."""
    rows = list(map(decoded_row, records.keys, records.values))
    columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
    arrays = [_column(field, records, columns) for field in schema]
    batch = pa.record_batch(arrays, schema=schema)
    if table == "rows":
        return batch
    is_row = np.array([fault is None for fault in columns["fault"]], np.bool_)
    wanted = is_row if table == "changes" else ~is_row
    return batch if wanted.all() else batch.filter(pa.array(wanted))


def _column(field: pa.Field, records: TopicRecords, columns: dict[str, tuple[object, ...]]) -> pa.Array:
    if field.name == "deleted":
        return pa.array([value is None for value in records.values])
    if field.name == "reason":
        return pa.array(columns["fault"], field.type)
    if field.name in columns:
        return row_column(field.name, columns[field.name], field.type)
    return TOPIC_COLUMNS[_BESIDE.get(field.name, field.name)](records)
