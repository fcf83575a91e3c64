"""Records of the WAL become Arrow batches: rows of one of the tables of `schemas.WAL_TABLES`.

Hot path: arrays of a whole fetch, no loop over operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from loaders.spark.read.decoding import HEAD, OPERATION, Decoded, Numbers, decoded
from loaders.spark.read.frames import HEAD_TYPES, flattened_rows
from loaders.spark.read.topic_records import TOPIC_COLUMNS, TopicRecords

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

    def __init__(self, table: str, schema: pa.Schema, journal: bytes, shards: int) -> None:
        self._table = table
        self._schema = schema
        self._journal = journal
        self._shards = shards

    def rows(self, records: TopicRecords) -> pa.RecordBatch:
        """The rows of these records."""
        if self._table == "entries":
            given = {name: TOPIC_COLUMNS[name](records) for name in ("topic", "shard", "offset", "timestamp", "value")}
            flat = flattened_rows(pa.RecordBatch.from_pydict(given), self._journal, self._shards)
            return flat.select(self._schema.names)
        found = decoded(records.values, records.shards, self._journal, self._shards)
        if self._table == "operations":
            return self._operations(records, found)
        columns = [_of_record(name, records, found) for name in self._schema.names]
        batch = pa.record_batch(columns, schema=self._schema)
        is_frame = np.array([fault is None for fault in found.faults], np.bool_)
        wanted = {"frames": is_frame, "dead_letters": ~is_frame}.get(self._table)
        return batch if wanted is None or wanted.all() else batch.filter(pa.array(wanted))

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
    if name == "reason":
        return pa.array(found.faults, pa.string())
    return pa.array(found.heads[name], HEAD_TYPES[name]) if name in HEAD else TOPIC_COLUMNS[name](records)


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
