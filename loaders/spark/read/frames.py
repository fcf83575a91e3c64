"""WAL records become operations, one row each. Records that are no frames become dead letters, with the reason.

The rules are those of docs/FORMAT.md; `decoding` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from loaders.spark.read.decoding import HEAD, OPERATION, decoded, head, pieces
from loaders.spark.read.source import JournalIdentity

_RECORD = "topic string, shard int, offset bigint, timestamp timestamp"
_OPERATIONS = (
    "value binary, fault string, epoch bigint, node string, `group` bigint, number bigint, previous bigint, "
    "last boolean, issued bigint, count int, index int, type string, id bigint, kind int, data binary, "
    "replaceable boolean, subject bigint, tx bigint, covers int, shards int"
)
HEAD_TYPES = {
    "journal": pa.binary(),
    "epoch": pa.int64(),
    "node": pa.string(),
    "group": pa.int64(),
    "number": pa.int64(),
    "previous": pa.int64(),
    "last": pa.bool_(),
    "issued": pa.int64(),
    "count": pa.int32(),
}
_HEADS = pa.struct(HEAD_TYPES.items())

_OF_A_RECORD = ("ADD", "UPDATE", "DELETE")
_OF_A_TRANSACTION = ("PREPARE", "COMMIT", "ROLLBACK")


def with_operations(records: DataFrame, journal: JournalIdentity, further: str = "") -> DataFrame:
    """One row for each operation of records in Kafka's columns and those of the schema `further`. A record without
    operations, or that is no frame of the journal, gives one row whose `index` is null; `fault` then says why it is no
    frame, and `value` has its bytes."""
    schema = ", ".join(filter(None, (_RECORD, further)))
    names = [column.split()[0] for column in schema.split(", ")]
    read = records.withColumnRenamed("partition", "shard").select(*names, "value")
    return read.mapInArrow(partial(_decoded, journal=(journal.uuid, journal.shards)), f"{schema}, {_OPERATIONS}")


def _decoded(batches: Iterable[pa.RecordBatch], journal: tuple[bytes, int]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for piece in pieces(batch):
            yield flattened_rows(piece, *journal)


def flattened_rows(records: pa.RecordBatch, uuid: bytes, shards: int) -> pa.RecordBatch:
    """The rows of `with_operations` for records in its columns, of a journal with this uuid and so many shards."""
    found = decoded(records["value"].to_pylist(), records["shard"].to_numpy(), uuid, shards)
    alone = np.setdiff1d(np.arange(records.num_rows), found.rows)
    rows = pa.array(np.concatenate([found.rows, alone]))
    of_record = {name: records[name] for name in records.schema.names if name != "value"}
    faults = pa.array(found.faults, pa.string())
    values = pa.compute.if_else(faults.is_valid(), records["value"], None)
    heads = {name: pa.array(values_, HEAD_TYPES[name]) for name, values_ in found.heads.items()}
    columns = {
        name: column.take(rows) for name, column in (of_record | {"value": values, "fault": faults} | heads).items()
    }
    columns["index"] = _with_nulls(pa.array(found.index), len(alone))
    columns |= {name: _with_nulls(found.operations[name], len(alone)) for name in OPERATION}
    return pa.RecordBatch.from_pydict(columns)


def _with_nulls(values: pa.Array, count: int) -> pa.Array:
    return pa.concat_arrays([values, pa.nulls(count, values.type)]) if count else values


def head_of(column: str) -> Column:
    """The fields before a frame's operations, of any journal; null for other bytes."""
    found: Column = _HEAD_OF(column)
    return found


def _heads(values: pa.Array) -> pa.Array:
    found = [head(value) for value in values.to_pylist()]
    told = [None if frame is None else {name: getattr(frame, name) for name in HEAD_TYPES} for frame in found]
    return pa.array(told, _HEADS)


_HEAD_OF = arrow_udf(_heads, returnType=from_arrow_type(_HEADS))  # type: ignore[call-overload]  # see _heads for its kind


def frames(read: DataFrame) -> DataFrame:
    """One row for each frame in the result of `with_operations`, heartbeats too, in no order; docs/SPARK.md has the
    columns. The result has `skip` if it was read."""
    further = [column for column in ("skip",) if column in read.columns]
    firsts = read.where(F.col("fault").isNull() & (F.coalesce("index", F.lit(0)) == 0))
    return firsts.select("shard", "offset", F.col("timestamp").alias("appended"), *HEAD, *further)


def operations(read: DataFrame) -> DataFrame:
    """One row for each operation in the result of `with_operations`, in no order; docs/SPARK.md has the columns."""
    kind = F.col("type")
    has_kind = kind.isin("ADD", "UPDATE")
    return read.where(F.col("index").isNotNull()).select(
        "shard",
        "offset",
        "index",
        F.col("timestamp").alias("appended"),
        "epoch",
        "node",
        "group",
        "number",
        "type",
        _if(kind.isin(*_OF_A_RECORD), "id"),
        _if(has_kind, "kind"),
        _if(has_kind | kind.isin("PREPARE", "MARKER"), "data"),
        _if(kind == "UPDATE", "replaceable"),
        _if(kind == "UPDATE", "subject"),
        _if(F.col("tx") != 0, "tx"),
        _if(kind.isin(*_OF_A_TRANSACTION), "covers"),
        _if(kind == "PREPARE", "shards"),
    )


def dead_letters(read: DataFrame) -> DataFrame:
    """The records in the result of `with_operations` that are no frames of this journal: topic, partition, offset,
    timestamp, value and reason."""
    shard, reason = F.col("shard").alias("partition"), F.col("fault").alias("reason")
    bad = read.where(F.col("fault").isNotNull())
    return bad.select("topic", shard, "offset", "timestamp", "value", reason)


def _if(concerns: Column, name: str) -> Column:
    return F.when(concerns, F.col(name)).alias(name)
