"""The tables that a journal is read as, and their columns, in Spark's notation. docs/SPARK.md says what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from journal.errors import ConfigError

_TYPES: Mapping[str, DataType] = {
    "binary": BinaryType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def _struct(columns: str, known: Mapping[str, DataType] = _TYPES) -> StructType:
    """Columns in Spark's notation; a type may also be a name of `_OF_ROWS`."""
    fields = (field.replace("`", "").split() for field in columns.split(", "))
    return StructType([StructField(name, known[type_]) for name, type_ in fields])


_MARK_COUNTS = (
    "records bigint, updates bigint, staged bigint, prepared bigint, applied bigint, rejected bigint, stale bigint, "
    "skipped bigint, dropped bigint"
)
_POSITION = _struct("offset bigint, index int, ordinal int")
_UPDATE = _struct(
    "position position, kind int, data binary, replaceable boolean, subject bigint", {**_TYPES, "position": _POSITION}
)
_OF_ROWS: Mapping[str, DataType] = {
    **_TYPES,
    "position": _POSITION,
    "updates": ArrayType(_UPDATE),
    "transaction": _struct(
        "epoch bigint, staged int, prepared boolean, data binary, shards int, bytes bigint, prepared_at timestamp"
    ),
    "mark": _struct(
        "offset bigint, number bigint, `group` bigint, epoch bigint, node string, issued bigint, appended timestamp, "
        f"{_MARK_COUNTS}"
    ),
    "texts": MapType(StringType(), StringType()),
    "xid": _struct("format_id bigint, gtrid binary, bqual binary"),
    "skipped": _struct("offset bigint, reason string, operator string, skipped_at timestamp, raw binary"),
}
_PLACE = "shard int, offset bigint, appended timestamp"
_BYTES = "key binary, value binary"
_ORIGIN = "epoch bigint, node string, `group` bigint, number bigint"
_HEADER = f"{_ORIGIN}, previous bigint, last boolean, issued bigint, count int"
_OPERATION = (
    "type string, id bigint, kind int, data binary, replaceable boolean, subject bigint, tx bigint, covers int, "
    "shards int"
)
_KAFKA = "topic string, partition int, offset bigint, timestamp timestamp"

WAL_TABLES: Mapping[str, str] = {
    "operations": f"shard int, offset bigint, index int, appended timestamp, {_ORIGIN}, {_OPERATION}",
    "frames": f"{_PLACE}, {_HEADER}, {_BYTES}",
    "dead_letters": f"{_KAFKA}, {_BYTES}, reason string",
    "wal": f"{_PLACE}, uuid binary, {_HEADER}, {_BYTES}",
    "entries": (
        f"topic string, shard int, offset bigint, timestamp timestamp, {_BYTES}, fault string, "
        f"{_HEADER}, index int, {_OPERATION}"
    ),
}
"""The tables that are read from the WAL, with their columns. Rows of `operations` and `frames` are of frames only,
those of `dead_letters` of records that are no frames. `wal` has all records, with the fields before their operations,
which are not checked. `entries` is what `frames.with_operations` makes of all records."""

_CHANGE = (
    "shard int, offset bigint, written timestamp, key binary, row string, deleted boolean, id bigint, tx bigint, "
    "type string, kind int, data binary, replaceable boolean, subject bigint, position position, updates updates, "
    "spilled boolean, transaction transaction, mark mark, skipped skipped"
)
ROW_TABLES: Mapping[str, str] = {
    "changes": _CHANGE,
    "rows": f"topic string, {_CHANGE}, value binary, fault string",
    "dead_rows": f"{_KAFKA}, {_BYTES}, reason string",
}
"""The tables that are read from the table topic, record by record, with their columns. Records that are no rows are
those of `dead_rows`; `rows` has all records, and says why one is no row."""

STATE_TABLES: Mapping[str, str] = {
    "records": (
        "shard int, id bigint, kind int, data binary, position position, updates updates, offset bigint, "
        "written timestamp"
    ),
    "messages": (
        "shard int, message bigint, queue_id bigint, queue string, address string, priority int, position position, "
        "deliveries int, holder string, sent_at timestamp, expires_at timestamp, due_at timestamp, body binary, "
        "body_bytes bigint, headers texts, properties texts, duplicate_id binary"
    ),
    "transactions": (
        "tx bigint, shard int, prepared boolean, epoch bigint, operations bigint, bytes bigint, shards_prepared int, "
        "prepared_at timestamp, data binary, xid xid"
    ),
    "staged": (
        "tx bigint, shard int, type string, id bigint, kind int, data binary, replaceable boolean, subject bigint, "
        "position position"
    ),
    "marks": (
        "shard int, row_offset bigint, written timestamp, offset bigint, number bigint, `group` bigint, epoch bigint, "
        f"node string, issued bigint, appended timestamp, {_MARK_COUNTS}"
    ),
    "skipped": "shard int, offset bigint, reason string, operator string, skipped_at timestamp, raw binary",
}
"""The tables that are made from the state of each shard's table, with their columns. A row of `transactions` is
the part of a transaction in one shard."""

_TABLES: Mapping[str, str] = {**WAL_TABLES, **STATE_TABLES, **ROW_TABLES}


def table_schema(name: str, columns: Collection[str] | None = None) -> StructType:
    """The columns of a table, or those of them that are asked for. Raises ConfigError for one that the table lacks."""
    if name not in _TABLES:
        raise ConfigError(f"there is no table {name}: table is one of {', '.join(_TABLES)}")
    known = {field.name: field for field in _struct(_TABLES[name], _OF_ROWS)}
    if unknown := [column for column in columns or () if column not in known]:
        raise ConfigError(f"table {name} has no column {', '.join(unknown)}: it has {', '.join(known)}")
    return StructType([known[column] for column in columns or known])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark wants batches to have."""
    return to_arrow_schema(schema, timezone="UTC")
