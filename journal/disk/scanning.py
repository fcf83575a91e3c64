"""Reads RocksDB with cursors. A cursor of RocksDB that cannot read on just ends; here this raises an error."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rocksdict import Rdict, RdictIter, ReadOptions

from journal.disk.trouble import local_error
from journal.wire.keys import BEHIND_RECORDS, RECORD_TAG, is_xa

Row = tuple[bytes, bytes]

_FIRST_CHUNK_ROWS = 16
_CHUNK_ROWS = 1024


def check_cursor(cursor: RdictIter, directory: Path) -> None:
    """Raises LocalStorageError if a cursor ended because it could not read."""
    try:
        cursor.status()
    except Exception as error:  # rocksdict raises bare exceptions for all errors of RocksDB
        raise local_error("read", directory, error) from error


def scan_rows(cursor: RdictIter, prefix: bytes, directory: Path) -> Iterator[Row]:
    """Rows whose keys start with `prefix`, in the order of their keys. Other code may use the cursor between two
    chunks."""
    return chain.from_iterable(_chunks(cursor, prefix, prefix, directory))


def _chunks(cursor: RdictIter, prefix: bytes, start: bytes, directory: Path) -> Iterator[list[Row]]:
    """Chunks of rows from `start` on. Hot path: keys are in order, so only the last key of a chunk is compared with the
    prefix."""
    size = _FIRST_CHUNK_ROWS
    while chunk := _chunk(cursor, start, size, directory):
        last = chunk[-1][0]
        if not last.startswith(prefix):
            yield [row for row in chunk if row[0].startswith(prefix)]
            return
        yield chunk
        start, size = last + b"\0", _CHUNK_ROWS


def _chunk(cursor: RdictIter, start: bytes, size: int, directory: Path) -> list[Row]:
    cursor.seek(start)
    valid, key, value, step = cursor.valid, cursor.key, cursor.value, cursor.next
    rows: list[Row] = []
    while len(rows) < size and valid():
        rows.append((key(), value()))
        step()
    if len(rows) < size:
        check_cursor(cursor, directory)
    return rows


def scan_records(table: Rdict, cursor: RdictIter, directory: Path) -> Iterator[Row]:
    """The rows of all records at the moment of the call.

    Hot path: an iterator makes one call into RocksDB for a row, where a cursor makes four. But when an iterator cannot
    read, it ends without an error. So a cursor of the same moment continues after the iterator's last row. Normally it
    finds nothing there; otherwise it reads the remaining rows, or raises the error.
    """
    bounded = ReadOptions()
    bounded.set_iterate_upper_bound(BEHIND_RECORDS)
    return chain.from_iterable(_record_chunks(table.items(from_key=RECORD_TAG, read_opt=bounded), cursor, directory))


def _record_chunks(rows: Iterator[tuple[Any, bytes]], cursor: RdictIter, directory: Path) -> Iterator[list[Row]]:
    last = RECORD_TAG
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        yield chunk
        last = chunk[-1][0]
    yield from _chunks(cursor, RECORD_TAG, last + b"\0", directory)


class RocksSnapshotStore:
    """Both tables at one moment, between two batches of the store's owner. One thread uses it.

    It has two cursors that were made at that moment; each sees its table as it was then. rocksdict's own Snapshot would
    not do: its iterators show what is written later.
    """

    def __init__(self, table: Rdict, xa: Rdict, directory: Path) -> None:
        self._cursors = (table.iter(), xa.iter())
        self._directory = directory
        self._records: Iterator[Row] | None = scan_records(table, self._cursors[0], directory)
        """The rows for the first scan of all records; later scans use the cursor."""

    def get(self, key: bytes) -> bytes | None:
        cursor = self._cursors[is_xa(key)]
        cursor.seek(key)
        if not cursor.valid():
            check_cursor(cursor, self._directory)
            return None
        if cursor.key() != key:
            return None
        value: bytes = cursor.value()
        return value

    def scan(self, prefix: bytes) -> Iterator[Row]:
        if prefix == RECORD_TAG and self._records is not None:
            records, self._records = self._records, None
            return records
        return scan_rows(self._cursors[is_xa(prefix)], prefix, self._directory)

    def close(self) -> None:
        del self._cursors
        self._records = None
