"""Records of the WAL become Arrow batches: rows of one of the tables of `schemas.WAL_TABLES`.

Hot path: arrays of a whole fetch, no loop over operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from loaders.spark.read.decoding import HEAD, OPERATION, Decoded, Numbers, decoded, head
from loaders.spark.read.source import JournalIdentity
from loaders.spark.read.topic_records import TOPIC_COLUMNS, TopicRecords

HEAD_TYPES = {
    "uuid": pa.binary(),
    "epoch": pa.int64(),
    "node": pa.string(),
    "group": pa.int64(),
    "number": pa.int64(),
    "previous": pa.int64(),
    "last": pa.bool_(),
    "issued": pa.int64(),
    "count": pa.int32(),
}
"""The columns of a frame's fields before its operations."""
_FIELDS = {"uuid": "journal"}
"""The fields whose columns have other names."""
_WITH: Mapping[str, Sequence[str]] = {
    "id": ("ADD", "UPDATE", "DELETE"),
    "kind": ("ADD", "UPDATE"),
    "data": ("ADD", "UPDATE", "PREPARE", "MARKER"),
    "replaceable": ("UPDATE",),
    "subject": ("UPDATE",),
    "covers": ("PREPARE", "COMMIT", "ROLLBACK"),
    "shards": ("PREPARE",),
}
"""The operations that have each column; `type` is of all, and `tx` of those whose transaction is not 0."""


class WalBatches:
    """Makes batches of one table. `schema` names the wanted columns; it is Arrow's."""

    def __init__(self, table: str, schema: pa.Schema, journal: JournalIdentity) -> None:
        self._table = table
        self._schema = schema
        self._journal = journal

    def rows(self, records: TopicRecords) -> pa.RecordBatch:
        """The rows of these records."""
        if self._table == "wal":
            return self._unchecked(records)
        found = decoded(records.values, records.shards, self._journal.uuid, self._journal.shards)
        if self._table == "entries":
            return self._entries(records, found)
        if self._table == "operations":
            return self._operations(records, found)
        columns = [_of_record(name, records, found) for name in self._schema.names]
        batch = pa.record_batch(columns, schema=self._schema)
        is_frame = np.array([fault is None for fault in found.faults], np.bool_)
        wanted = is_frame if self._table == "frames" else ~is_frame
        return batch if wanted.all() else batch.filter(pa.array(wanted))

    def _unchecked(self, records: TopicRecords) -> pa.RecordBatch:
        heads = [head(value) for value in records.values]
        columns = [
            pa.array([None if each is None else getattr(each, _FIELDS.get(name, name)) for each in heads], type_)
            if (type_ := HEAD_TYPES.get(name)) is not None
            else TOPIC_COLUMNS[name](records)
            for name in self._schema.names
        ]
        return pa.record_batch(columns, schema=self._schema)

    def _entries(self, records: TopicRecords, found: Decoded) -> pa.RecordBatch:
        alone = np.setdiff1d(np.arange(len(records.offsets)), found.rows)
        rows = pa.array(np.concatenate([found.rows, alone]))
        columns = [
            _with_nulls(pa.array(found.index) if name == "index" else found.operations[name], len(alone))
            if name == "index" or name in OPERATION
            else _of_entry(name, records, found).take(rows)
            for name in self._schema.names
        ]
        return pa.record_batch(columns, schema=self._schema)

    def _operations(self, records: TopicRecords, found: Decoded) -> pa.RecordBatch:
        rows = pa.array(found.rows)
        columns = [
            _of_operation(name, found)
            if name == "index" or name in OPERATION
            else _of_record(name, records, found).take(rows)
            for name in self._schema.names
        ]
        return pa.record_batch(columns, schema=self._schema)


def _of_record(name: str, records: TopicRecords, found: Decoded) -> pa.Array:
    if name in ("reason", "fault"):
        return pa.array(found.faults, pa.string())
    return pa.array(found.heads[name], HEAD_TYPES[name]) if name in HEAD else TOPIC_COLUMNS[name](records)


def _of_entry(name: str, records: TopicRecords, found: Decoded) -> pa.Array:
    """A column of records; keys and values are those of the records that are no frames."""
    if name not in ("key", "value"):
        return _of_record(name, records, found)
    bytes_ = records.keys if name == "key" else records.values
    return pa.array(
        [None if fault is None else each for each, fault in zip(bytes_, found.faults, strict=True)], pa.binary()
    )


def _with_nulls(values: pa.Array, count: int) -> pa.Array:
    return pa.concat_arrays([values, pa.nulls(count, values.type)]) if count else values


def _of_operation(name: str, found: Decoded) -> pa.Array:
    if name == "index":
        return pa.array(found.index)
    values = found.operations[name]
    if name == "tx":
        return _only(values, values.to_numpy() != 0)
    if name not in _WITH:
        return values
    return _only(values, found.has_type(_WITH[name]))


def _only(values: pa.Array, present: Numbers) -> pa.Array:
    """The values, without those that are not present. Only the bits that say so are new."""
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [bits, *values.buffers()[1:]])
