"""RocksDB as local storage (rocksdict, raw bytes): the global table and the XA state table as column families.

A batch survives a killed process: RocksDB's own log is written with it, unsynced, so after a power cut the newest
batches may be gone, each as a whole. Rows and the position they belong to are in one batch, so the copy is then merely
older, and reads the table topic from there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DbClosedError, Options, Rdict, WriteBatch, WriteOptions
from rocksdict import Snapshot as RocksSnapshot

from journal.engine import Change
from journal.errors import LocalStorageError
from journal.wire.keys import is_xa

_TABLE = "table"
_XA = "xa"
_NAMED = "named"
_CACHE_BYTES = 64 * 1024 * 1024
_WRITE_BUFFER_BYTES = 32 * 1024 * 1024
_BLOOM_BITS = 10
_FIRST_CHUNK_ROWS = 16
_CHUNK_ROWS = 1024


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_keep_log_file_num(2)
    options.set_max_background_jobs(2)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(Cache(_CACHE_BYTES))
    options.set_block_based_table_factory(blocks)
    return options


def _scan(
    families: tuple[Rdict | RocksSnapshot, Rdict | RocksSnapshot], prefix: bytes
) -> Iterator[tuple[bytes, bytes]]:
    family = families[is_xa(prefix)]
    rows: Iterator[tuple[bytes, bytes]] = family.items(from_key=prefix) if prefix else family.items()  # type: ignore
    return chain.from_iterable(_chunks(rows, prefix))


def _chunks(rows: Iterator[tuple[bytes, bytes]], prefix: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
    """Hot path: rows come in key order, so the last of a chunk speaks for all of it."""
    size = _FIRST_CHUNK_ROWS
    while chunk := list(islice(rows, size)):
        if not chunk[-1][0].startswith(prefix):
            yield [row for row in chunk if row[0].startswith(prefix)]
            return
        yield chunk
        size = _CHUNK_ROWS


class RocksSnapshotStore:
    """Both tables at one moment; the store's owner takes it between two batches."""

    def __init__(self, table: Rdict, xa: Rdict) -> None:
        self._table = table.snapshot()
        self._xa = xa.snapshot()
        self._cursors = (self._table.iter(), self._xa.iter())

    def get(self, key: bytes) -> bytes | None:
        cursor = self._cursors[is_xa(key)]
        cursor.seek(key)
        if not cursor.valid() or cursor.key() != key:
            return None
        value: bytes = cursor.value()
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _scan((self._table, self._xa), prefix)

    def close(self) -> None:
        del self._cursors, self._table, self._xa


class RocksStore:
    """A `LocalStore` in a directory. Raises LocalStorageError if another process holds it or the disk refuses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open()

    def _open(self) -> None:
        options = _options()
        families = dict.fromkeys((_TABLE, _XA, _NAMED), options)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(self._directory), options, column_families=families)
        except Exception as error:  # rocksdict raises it for everything that RocksDB says
            raise LocalStorageError(f"cannot open {self._directory}: {error}") from error
        self._table = self._db.get_column_family(_TABLE)
        self._xa = self._db.get_column_family(_XA)
        self._named = self._db.get_column_family(_NAMED)
        self._handles = (self._db.get_column_family_handle(_TABLE), self._db.get_column_family_handle(_XA))
        self._named_handle = self._db.get_column_family_handle(_NAMED)
        self._lossy = WriteOptions()
        # rocksdict declares a method here and has an attribute
        self._lossy.disable_wal = True  # type: ignore[method-assign, assignment]
        self.get = self._table.get

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _scan((self._table, self._xa), prefix)

    def write(self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete, handles = batch.put, batch.delete, self._handles
        for key, value in rows:
            handle = handles[is_xa(key)]
            if value is None:
                delete(key, handle)
            else:
                put(key, value, handle)
        for name, value in named.items():
            put(name, value, self._named_handle)
        try:
            if durable:
                self._db.write(batch)
            else:
                self._db.write(batch, self._lossy)
        except DbClosedError:
            raise
        except Exception as error:
            raise LocalStorageError(f"cannot write {self._directory}: {error}") from error

    def named(self, name: bytes) -> bytes | None:
        value: bytes | None = self._named.get(name)
        return value

    def flush(self) -> None:
        for family in (self._table, self._xa):
            family.flush()

    def snapshot(self) -> RocksSnapshotStore:
        return RocksSnapshotStore(self._table, self._xa)

    def clear(self) -> None:
        self.close()
        shutil.rmtree(self._directory)
        self._open()

    def close(self) -> None:
        for family in (self._table, self._xa, self._named):
            family.close()
        self._db.close()
        # the lock on the directory goes with the last reference to a column family
        del self.get, self._handles, self._named_handle, self._table, self._xa, self._named, self._db
