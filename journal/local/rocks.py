"""RocksDB as local storage (rocksdict, raw bytes): the global table and the XA state table as column families.

A batch survives a killed process: RocksDB's own log is written with it, unsynced unless asked for, so after a power cut
the newest batches may be gone, each as a whole. Rows and the position they belong to are in one batch, so the copy is
then merely older, and reads the table topic from there.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from journal.engine import Change
from journal.errors import LocalDamageError, LocalStorageError
from journal.wire.keys import BEHIND_RECORDS, RECORD_KEY_BYTES, RECORD_TAG, XA_TAGS, is_xa

log = logging.getLogger(__name__)

_TABLE = "table"
_XA = "xa"
_NAMED = "named"
_CACHE_BYTES = 128 * 1024 * 1024
"""Of the process: a worker's shards share it, as they share its memory."""
_WRITE_BUFFER_BYTES = 32 * 1024 * 1024
_BLOOM_BITS = 10
_COMPACTED_FILES = 8
"""Instead of RocksDB's 4: a row is merged half as often, and what is read looks into a few files more."""
_COMPACTED_FILES_FILLING = 16
"""From twenty such files on RocksDB slows writes down."""
_DAMAGE = ("Corruption", "No such file or directory")
"""What RocksDB says of files that it cannot read, or misses."""
_CLOSED = "the store is closed"
_FIRST_CHUNK_ROWS = 16
_CHUNK_ROWS = 1024


@cache
def _block_cache() -> Cache:
    return Cache(_CACHE_BYTES)


def _options(*, filling: bool = False) -> Options:
    """Of a column family; `filling`: of one that is filled and then opened anew, and hardly read before.

    Its files are merged less often, and not compressed before they are: it would take a core away from the reading.
    Rows of a topic mostly come in the order of their keys, which a skip list takes for less than a vector and its sort.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_keep_log_file_num(2)
    options.set_max_background_jobs(2)
    if filling:
        options.set_allow_concurrent_memtable_write(False)
        options.set_compression_type(DBCompressionType.none())
    options.set_level_zero_file_num_compaction_trigger(_COMPACTED_FILES_FILLING if filling else _COMPACTED_FILES)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(_block_cache())
    options.set_block_based_table_factory(blocks)
    return options


def _scan(cursor: RdictIter, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Rows whose key starts with `prefix`, in key order; other uses of the cursor may come in between chunks."""
    return chain.from_iterable(_chunks(cursor, prefix))


def _chunks(cursor: RdictIter, prefix: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
    """Hot path: rows come in key order, so the last of a chunk speaks for all of it."""
    start, size = prefix, _FIRST_CHUNK_ROWS
    while chunk := _chunk(cursor, start, size):
        last = chunk[-1][0]
        if not last.startswith(prefix):
            yield [row for row in chunk if row[0].startswith(prefix)]
            return
        yield chunk
        start, size = last + b"\0", _CHUNK_ROWS


def _chunk(cursor: RdictIter, start: bytes, size: int) -> list[tuple[bytes, bytes]]:
    """Raises LocalDamageError: a cursor that meets damaged files says only that it is at its end."""
    cursor.seek(start)
    valid, key, value, step = cursor.valid, cursor.key, cursor.value, cursor.next
    rows: list[tuple[bytes, bytes]] = []
    while len(rows) < size and valid():
        rows.append((key(), value()))
        step()
    if len(rows) < size:
        check_cursor(cursor)
    return rows


class _Records:
    """The rows of all records, as they are when this is made; to be iterated once.

    Hot path: one call into RocksDB a row, where a cursor takes four. But such an iterator ends without a word where it
    cannot read; so a cursor of the same moment looks what is behind its last row.
    """

    def __init__(self, table: Rdict, cursor: RdictIter) -> None:
        bounded = ReadOptions()
        bounded.set_iterate_upper_bound(BEHIND_RECORDS)
        self._rows: Iterator[tuple[Any, bytes]] = table.items(from_key=RECORD_TAG, read_opt=bounded)
        self._cursor = cursor

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(self._chunks())

    def _chunks(self) -> Iterator[list[tuple[bytes, bytes]]]:
        last = RECORD_TAG
        while chunk := list(islice(self._rows, _CHUNK_ROWS)):
            yield chunk
            last = chunk[-1][0]
        behind = _chunk(self._cursor, last + b"\0", 1)
        if behind and behind[0][0].startswith(RECORD_TAG):
            raise LocalDamageError(f"cannot read: an iterator ended before row {behind[0][0].hex()}")


def check_cursor(cursor: RdictIter) -> None:
    """Raises LocalDamageError if a cursor is not valid because of what it could not read."""
    try:
        cursor.status()
    except Exception as error:  # rocksdict raises it for everything that RocksDB says
        raise LocalDamageError(f"cannot read: {error}") from error


def _reading(get: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
    """Hot path: a table's `get`, which raises LocalDamageError where RocksDB cannot read."""

    def checked(key: bytes) -> bytes | None:
        try:
            return get(key)
        except DbClosedError:
            raise
        except Exception as error:  # rocksdict raises it for everything that RocksDB says
            raise LocalDamageError(f"cannot read: {error}") from error

    return checked


def _closed(key: bytes) -> bytes | None:
    raise DbClosedError(_CLOSED)


class RocksSnapshotStore:
    """Both tables at one moment; the store's owner takes it between two batches. Used by one thread.

    Two cursors made at that moment, each of which sees its table as it then was. (rocksdict's own Snapshot gives
    iterators that do not: they show what is written later.)
    """

    def __init__(self, table: Rdict, xa: Rdict) -> None:
        self._cursors = (table.iter(), xa.iter())
        self._records: _Records | None = _Records(table, self._cursors[0])

    def get(self, key: bytes) -> bytes | None:
        cursor = self._cursors[is_xa(key)]
        cursor.seek(key)
        if not cursor.valid():
            check_cursor(cursor)
            return None
        if cursor.key() != key:
            return None
        value: bytes = cursor.value()
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        if prefix == RECORD_TAG and self._records is not None:
            records, self._records = self._records, None
            return iter(records)
        return _scan(self._cursors[is_xa(prefix)], prefix)

    def close(self) -> None:
        del self._cursors
        self._records = None


def open_copy(directory: Path) -> RocksStore:
    """The store of a copy, in a directory that this process holds: one that cannot be opened is built anew."""
    try:
        return RocksStore(directory)
    except LocalStorageError as error:
        log.warning("the local copy is damaged, and built anew: %s", error)
    shutil.rmtree(directory, ignore_errors=True)
    return RocksStore(directory)


class RocksStore:
    """A `LocalStore` in a directory. Raises LocalStorageError if another process holds it or the disk refuses.

    RocksDB takes no more writes after one has failed, until it finds room by itself, every five seconds, and only as
    much as a write buffer. So whoever starts over with a store that failed, and asks it for a named value as every
    copy does first, has it opened again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_open = False
        self._open()

    def _open(self, *, filling: bool = False) -> None:
        options = _options(filling=filling)
        families = {_TABLE: options, _XA: options, _NAMED: _options()}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(self._directory), options, column_families=families)
        except Exception as error:  # rocksdict raises it for everything that RocksDB says
            raise self._fail("open", error) from error
        self._table = self._db.get_column_family(_TABLE)
        self._xa = self._db.get_column_family(_XA)
        self._named = self._db.get_column_family(_NAMED)
        self._handles = (self._db.get_column_family_handle(_TABLE), self._db.get_column_family_handle(_XA))
        self._named_handle = self._db.get_column_family_handle(_NAMED)
        self._lossy = WriteOptions()
        # rocksdict declares a method here and has an attribute
        self._lossy.disable_wal = True  # type: ignore[method-assign, assignment]
        self._synced = WriteOptions()
        self._synced.sync = True
        self.get: Callable[[bytes], bytes | None] = _reading(self._table.get)
        self._is_open = True
        self._failed = False
        self._filling = filling

    def _fail(self, doing: str, error: Exception) -> LocalStorageError:
        """Damage too where writing met it: a compaction reads, and RocksDB then refuses every write."""
        self._failed = True
        kind = LocalDamageError if any(said in str(error) for said in _DAMAGE) else LocalStorageError
        return kind(f"cannot {doing} {self._directory}: {error}")

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        if prefix == RECORD_TAG:
            return iter(_Records(self._table, self._table.iter()))
        return _scan((self._xa if is_xa(prefix) else self._table).iter(), prefix)

    def write(
        self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True, synced: bool = False
    ) -> None:
        """As `LocalStore` says. With `synced` the batch survives a power cut too: for what no other place has."""
        self._write([self._batch(rows)], named, self._synced if synced else None if durable else self._lossy)

    def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
        return partial(self._write, [self._batch(rows)])

    def _write(
        self, batch: list[WriteBatch], named: Mapping[bytes, bytes], options: WriteOptions | None = None
    ) -> None:
        """One batch, which is taken out of its list: with an error's traceback it would live on, and hold the
        directory's lock."""
        self._require_open()
        for name, value in named.items():
            batch[0].put(name, value, self._named_handle)
        try:
            self._db.write(batch.pop(), options)
        except DbClosedError:
            raise
        except Exception as error:
            raise self._fail("write", error) from error

    def _batch(self, rows: Iterable[Change]) -> WriteBatch:
        """Hot path: one pass; the table is the batch's default family, so that only XA rows name theirs."""
        self._require_open()
        batch = WriteBatch(raw_mode=True)
        table, xa = self._handles
        batch.set_default_column_family(table)
        put, delete = batch.put, batch.delete
        for key, value in rows:
            if key[0] in XA_TAGS:
                if value is None:
                    delete(key, xa)
                else:
                    put(key, value, xa)
            elif value is None:
                delete(key)
            else:
                put(key, value)
        return batch

    def _require_open(self) -> None:
        if not self._is_open:
            raise LocalStorageError(f"cannot write {self._directory}: {_CLOSED}")

    def named(self, name: bytes) -> bytes | None:
        if self._failed:
            self.close()
            self._open()
        try:
            value: bytes | None = self._named.get(name)
        except DbClosedError:
            raise
        except Exception as error:  # as above
            raise LocalDamageError(f"cannot read {self._directory}: {error}") from error
        return value

    def highest_record(self) -> int:
        cursor = self._table.iter()
        cursor.seek_for_prev(BEHIND_RECORDS)
        if not cursor.valid():
            check_cursor(cursor)
            return 0
        key: bytes = cursor.key()
        return int.from_bytes(key[1:RECORD_KEY_BYTES], "big") if key[:1] == RECORD_TAG else 0

    def flush(self) -> None:
        try:
            for family in (self._table, self._xa):
                family.flush()
        except Exception as error:  # as above
            raise self._fail("flush", error) from error
        if self._filling:
            self.close()
            self._open()

    def snapshot(self) -> RocksSnapshotStore:
        return RocksSnapshotStore(self._table, self._xa)

    def clear(self) -> None:
        self._failed = True
        self.close()
        try:
            if self._directory.exists():  # somebody may have deleted it
                shutil.rmtree(self._directory)
        except OSError as error:
            raise self._fail("clear", error) from error
        self._open(filling=True)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            for family in (self._table, self._xa, self._named):
                family.close()
            self._db.close()
        except Exception as error:  # noqa: BLE001  # as above; what it did not write to its files is still in its log
            log.warning("%s was not closed cleanly: %s", self._directory, error)
        # the lock on the directory goes with the last reference to a column family; other threads may still read
        self.get = _closed
        del self._handles, self._named_handle, self._table, self._xa, self._named, self._db
