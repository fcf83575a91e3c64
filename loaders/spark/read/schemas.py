"""The tables that a journal is read as, and their columns, in Spark's notation. docs/SPARK.md says what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
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
    "wal": f"{_PLACE}, {_HEADER}, {_BYTES}, reason string",
    "entries": (
        "topic string, shard int, offset bigint, timestamp timestamp, value binary, fault string, "
        f"{_HEADER}, index int, {_OPERATION}"
    ),
}
"""The tables that are read from the WAL, with their columns. Rows of `operations` and `frames` are of frames only,
those of `dead_letters` of records that are no frames; `wal` has all records. `entries` is what
`frames.with_operations` makes of all records."""

_TABLES: Mapping[str, str] = {**WAL_TABLES, "raw": f"{_BYTES}, {_KAFKA}"}


def table_schema(name: str, columns: Collection[str] | None = None) -> StructType:
    """The columns of a table, or those of them that are asked for. Raises ConfigError for one that the table lacks."""
    if name not in _TABLES:
        raise ConfigError(f"there is no table {name}: table is one of {', '.join(_TABLES)}")
    fields = [field.replace("`", "").split() for field in _TABLES[name].split(", ")]
    known = {column: StructField(column, _TYPES[type_]) for column, type_ in fields}
    if unknown := [column for column in columns or () if column not in known]:
        raise ConfigError(f"table {name} has no column {', '.join(unknown)}: it has {', '.join(known)}")
    return StructType([known[column] for column in columns or known])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark wants batches to have."""
    return to_arrow_schema(schema, timezone="UTC")
