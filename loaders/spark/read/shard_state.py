"""The state of a shard's table: the newest row of each key, in a RocksDB of the task that lasts as long as the task.

Compaction is lazy, so a topic may hold many rows of one key. A worker writes a checkpoint's rows and the mark in one
Kafka transaction, so what is committed ends with a mark, and the state is that of the mark (docs/FORMAT.md). In key
order, the updates of a record follow it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from journal.disk.rocks import RocksStore
from loaders.spark.read.fetching import fetched
from loaders.spark.read.ranges import ShardRange
from loaders.spark.read.row_decoding import Row, UpdateRow, decoded_row, is_key
from loaders.spark.read.source import JournalSource

_PLACE = Struct("<qq")
"""What stands before a row's value: its offset in the topic, and when it was written, in ms since 1970."""


class StateRow(NamedTuple):
    """A row of a state."""

    row: Row
    offset: int
    written_ms: int


class StateRecord(NamedTuple):
    """A record with its updates in order of their positions."""

    row: Row
    offset: int
    written_ms: int
    updates: list[UpdateRow]


class NewestRows:
    """The rows of one shard. Records that are no rows are left out."""

    def __init__(self, store: RocksStore) -> None:
        self._store = store

    def rows(self, tag: bytes) -> Iterator[StateRow]:
        """The rows whose keys begin with this tag, in key order."""
        for key, stored in self._store.scan(tag):
            row = decoded_row(key, stored[_PLACE.size :])
            if row.fault is None:
                yield StateRow(row, *_PLACE.unpack_from(stored))

    def records(self) -> Iterator[StateRecord]:
        """The records, in order of their ids."""
        found: StateRecord | None = None
        for row, offset, written_ms in self.rows(b"r"):
            if row.row == "RECORD":
                if found is not None:
                    yield found
                found = StateRecord(row, offset, written_ms, [])
            elif found is not None and found.row.id == row.id:
                found.updates.extend(_updates(row))
                found.updates.sort()
        if found is not None:
            yield found


@contextmanager
def shard_state(source: JournalSource, of: ShardRange) -> Iterator[NewestRows]:
    """The state that the records of this range of a table topic give. It is on the executor's disk."""
    with tempfile.TemporaryDirectory(prefix="kafka-journal-state-") as directory:
        store = RocksStore(Path(directory) / "rows")
        try:
            store.clear()
            for records in fetched(source, source.table, of):
                places = zip(records.offsets.tolist(), records.timestamps_ms.tolist(), strict=True)
                rows = zip(records.keys, records.values, places, strict=True)
                store.write(
                    [
                        (key, None if value is None else _PLACE.pack(*place) + value)
                        for key, value, place in rows
                        if key is not None and is_key(key)
                    ],
                    {},
                    durable=False,
                )
            store.flush()
            yield NewestRows(store)
        finally:
            store.close()


def _updates(row: Row) -> list[UpdateRow]:
    if row.updates is not None:
        return list(row.updates)
    assert row.position is not None
    return [(row.position, row.kind or 0, row.data or b"", bool(row.replaceable), row.subject or 0)]
