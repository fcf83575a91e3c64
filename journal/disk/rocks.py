"""RocksDB as local storage (rocksdict, raw bytes): the global table and the XA state table are column families.

A batch survives a killed process, because RocksDB's own log is written with it. The log is synced only if asked for, so
a power cut may take the newest batches, each as a whole. Rows and their position are in one batch: the copy is then
merely older, and reads the table topic from its position on.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rocksdict import DbClosedError, Rdict, WriteBatch, WriteOptions

from journal.disk.rocks_options import STORE_FILES, store_options
from journal.disk.room import Room
from journal.disk.scanning import RocksSnapshotStore, check_cursor, scan_records, scan_rows
from journal.disk.trouble import local_error
from journal.errors import LocalDamageError, LocalStorageError
from journal.fold.rows import Change
from journal.wire.keys import BEHIND_RECORDS, RECORD_KEY_BYTES, RECORD_TAG, XA_TAGS, is_xa

log = logging.getLogger(__name__)

_TABLE = "table"
_XA = "xa"
_NAMED = "named"
_CURRENT = "CURRENT"
"""RocksDB opens no store without this file."""
_CLOSED = "the store is closed"


def _reading(get: Callable[[bytes], bytes | None], directory: Path) -> Callable[[bytes], bytes | None]:
    """A table's `get`, which raises LocalStorageError where RocksDB cannot read. Hot path."""

    def checked(key: bytes) -> bytes | None:
        try:
            return get(key)
        except DbClosedError:
            raise
        except Exception as error:  # rocksdict raises bare exceptions for all errors of RocksDB
            raise local_error("read", directory, error) from error

    return checked


def _closed(key: bytes) -> bytes | None:
    raise DbClosedError(_CLOSED)


def open_copy(directory: Path, *, files_max: int = STORE_FILES) -> RocksStore:
    """Open the store of a copy, in a directory that this process holds. A damaged store is deleted and made anew.
    Raises LocalStorageError if the store cannot be opened for another reason, and leaves it as it is."""
    try:
        return RocksStore(directory, files_max=files_max)
    except LocalDamageError as error:
        log.warning("the local copy is damaged, and built anew: %s", error)
    _delete(directory)
    return RocksStore(directory, files_max=files_max)


def _delete(directory: Path) -> None:
    """Delete a store. If the deletion is broken off, RocksDB must not open the rest, because the remaining files could
    be of different moments."""
    try:
        (directory / _CURRENT).unlink(missing_ok=True)
        if directory.exists():  # another process or the user may have deleted it already
            shutil.rmtree(directory, onerror=_unless_gone)
    except OSError as error:
        raise local_error("clear", directory, error) from error


def _unless_gone(_: object, __: str, met: tuple[type[BaseException], BaseException, object]) -> None:
    """Raises the error that deleting a file met, unless the file no longer exists: a cursor that ends at the same time
    removes files too."""
    if not isinstance(met[1], FileNotFoundError):
        raise met[1]


class RocksStore:
    """A `LocalStore` in a directory. Raises LocalStorageError if another process holds the directory or the disk
    refuses. Half of its attributes are parts of the open store, which come and go together.

    After a failed write RocksDB refuses further writes. It checks for free disk space every five seconds, and then
    accepts only one write buffer. So a store that has failed is opened again when it is asked for a named value, which
    is the first step of every copy that starts over.

    If the disk is slower than the writer, the writer waits here; other threads run meanwhile.
    """

    def __init__(self, directory: Path, *, files_max: int = STORE_FILES) -> None:
        """`files_max` bounds the table files that RocksDB keeps open; some ten other files are open besides."""
        self._directory = directory
        self._files_max = files_max
        self._is_open = False
        self._open()

    def _open(self, *, filling: bool = False) -> None:
        options = store_options(self._files_max, filling=filling)
        families = {_TABLE: options, _XA: options, _NAMED: store_options(self._files_max)}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(self._directory), options, column_families=families)
        except Exception as error:  # rocksdict raises bare exceptions for all errors of RocksDB
            raise self._fail("open", error) from error
        self._table = self._db.get_column_family(_TABLE)
        self._xa = self._db.get_column_family(_XA)
        self._named = self._db.get_column_family(_NAMED)
        self._handles = (self._db.get_column_family_handle(_TABLE), self._db.get_column_family_handle(_XA))
        self._named_handle = self._db.get_column_family_handle(_NAMED)
        self._room = Room(self._directory, self._db, (self._table, self._xa, self._named))
        self._lossy = WriteOptions()
        # rocksdict declares a method here, but has an attribute.
        self._lossy.disable_wal = True  # type: ignore[method-assign, assignment]
        self.get: Callable[[bytes], bytes | None] = _reading(self._table.get, self._directory)
        self._is_open = True
        self._failed = False
        self._filling = filling

    def _fail(self, doing: str, error: Exception) -> LocalStorageError:
        """The error to raise for RocksDB's `error`. A write may meet damage too, because a compaction reads, and
        RocksDB then refuses every write."""
        self._failed = True
        return local_error(doing, self._directory, error)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        if prefix == RECORD_TAG:
            return scan_records(self._table, self._table.iter(), self._directory)
        return scan_rows((self._xa if is_xa(prefix) else self._table).iter(), prefix, self._directory)

    def write(
        self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True, synced: bool = False
    ) -> None:
        """Write one batch as `LocalStore` says. With `synced` it survives a power cut too, for data that are kept
        nowhere else."""
        self._write([self._batch(rows)], named, durable=durable, synced=synced)

    def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
        return partial(self._write, [self._batch(rows)])

    def _write(
        self, batch: list[WriteBatch], named: Mapping[bytes, bytes], *, durable: bool = True, synced: bool = False
    ) -> None:
        """Write one batch. The batch is taken out of its list, because an error's traceback would keep it, and the
        directory's lock with it."""
        self._require_open()
        self._room.wait()
        for name, value in named.items():
            batch[0].put(name, value, self._named_handle)
        try:
            self._db.write(batch.pop(), None if durable else self._lossy)
            if synced:
                self._db.flush_wal(True)  # other threads run during this sync, and not during a synced write
            self._room.ease()
        except DbClosedError:
            raise
        except Exception as error:
            raise self._fail("write", error) from error

    def _batch(self, rows: Iterable[Change]) -> WriteBatch:
        """Make a batch of row changes. Hot path: one pass; the table is the batch's default family, so only XA rows
        name theirs."""
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
        except Exception as error:  # rocksdict raises bare exceptions for all errors of RocksDB
            raise local_error("read", self._directory, error) from error
        return value

    def highest_record(self) -> int:
        cursor = self._table.iter()
        cursor.seek_for_prev(BEHIND_RECORDS)
        if not cursor.valid():
            check_cursor(cursor, self._directory)
            return 0
        key: bytes = cursor.key()
        return int.from_bytes(key[1:RECORD_KEY_BYTES], "big") if key[:1] == RECORD_TAG else 0

    def flush(self) -> None:
        try:
            self._room.flush()
        except LocalStorageError:
            raise
        except Exception as error:  # rocksdict raises bare exceptions for all errors of RocksDB
            raise self._fail("flush", error) from error
        if self._filling:
            self.close()
            self._open()

    def snapshot(self) -> RocksSnapshotStore:
        return RocksSnapshotStore(self._table, self._xa, self._directory)

    def clear(self) -> None:
        self._failed = True
        self.close()
        _delete(self._directory)
        self._open(filling=True)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._room.close()
        # RocksDB releases its lock on the directory when the last reference to a column family is gone, so all of them
        # are deleted here. Other threads may still call `get`: it raises an error from now on.
        self.get = _closed
        del self._room, self._handles, self._named_handle, self._table, self._xa, self._named, self._db
