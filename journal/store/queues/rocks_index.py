"""References beyond the memory bounds, in a RocksDB of their own (rocksdict, raw bytes).

    6F QUEUE*8 RANK PLACE*16             MESSAGE*8 DUE*8 EXPIRES*8 DATA     a reference; RANK has bit 7 set if
                                                                            SCHEDULED, bit 6 if passed
    6D MESSAGE*8 QUEUE*8                 RANK PLACE*16                      where a message's references are
    73 DUE*8 QUEUE*8 RANK PLACE*16                                          SCHEDULED ones by time
    78 EXPIRES*8 MESSAGE*8 QUEUE*8                                          those that expire by time
    70 (2^64-1-EXPIRES)*8 MESSAGE*8 QUEUE*8                                 passed ones, by time, the last first

All numbers are big-endian, so that keys sort in delivery order. The index is an extension of one process' memory, and
no other process reads it. So it has no log, and the directory is emptied at the start and at the close.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rocksdict import Rdict, ReadOptions, WriteBatch, WriteOptions

from journal.disk.rocks_options import STORE_FILES, store_options
from journal.disk.room import Room
from journal.disk.scanning import check_cursor
from journal.disk.trouble import local_error
from journal.errors import LocalStorageError
from journal.store.queues.index import Paged

log = logging.getLogger(__name__)

_REFERENCE, _MESSAGE, _DUE, _EXPIRES, _PASSED_BY = b"o", b"m", b"s", b"x", b"p"
_SCHEDULED, _PASSED, _RANK = 0x80, 0x40, 0x3F

_reference_key = struct.Struct(">cQBQQ")
_reference_head = struct.Struct(">QQQ")
_message_key = struct.Struct(">cQQ")
_message_value = struct.Struct(">BQQ")
_due_key = struct.Struct(">cQQBQQ")
_expires_key = struct.Struct(">cQQQ")
_line_prefix = struct.Struct(">cQB")
_message_prefix = struct.Struct(">cQ")

_LOW = (1 << 64) - 1
_BATCH_ENTRIES = 1024
_CHUNK_ROWS = 256

_T = TypeVar("_T")
_Row = tuple[bytes, bytes]


class RocksReferenceIndex:
    """A `ReferenceIndex` in a directory of its own. Not thread-safe.

    After one LocalStorageError every call raises it: references that could not be written are lost, and a part of a
    queue must not be taken for the whole.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Open the index in a directory, which is emptied first."""
        directory = self._directory = Path(directory)
        self._batch = WriteBatch(raw_mode=True)
        self._lossy = WriteOptions()
        # rocksdict declares a method where it has an attribute
        self._lossy.disable_wal = True  # type: ignore[method-assign, assignment]
        self._starts: dict[bytes, bytes] = {}
        """A key for each prefix: the index has no rows with this prefix before that key. A scan that starts there need
        not pass rows that were deleted earlier."""
        self._failure: LocalStorageError | None = None
        self._clear()
        self._db: Rdict = self._do("open", lambda: Rdict(str(directory), store_options(STORE_FILES)))
        # `default` is a reference of its own, because `Room` closes each table before the database
        self._room = Room(directory, self._db, [self._db.get_column_family("default")])

    def _clear(self) -> None:
        try:
            if self._directory.exists():
                shutil.rmtree(self._directory)
            self._directory.mkdir(parents=True)
        except OSError as error:
            raise LocalStorageError(f"cannot empty {self._directory}: {error}") from error

    def _do(self, what: str, act: Callable[[], _T]) -> _T:
        if self._failure is not None:
            raise self._failure.again()
        try:
            return act()
        except Exception as error:  # rocksdict raises a bare Exception for all errors of RocksDB
            self._failure = local_error(what, self._directory, error)
            raise self._failure from error

    # ---- writing ---------------------------------------------------------------------------------------------------

    def put(self, paged: Paged) -> None:
        batch = self._batch
        key = _key(paged)
        high, low = paged.place >> 64, paged.place & _LOW
        batch.put(key, _reference_head.pack(paged.message, paged.due, paged.expires) + paged.data)
        batch.put(
            _message_key.pack(_MESSAGE, paged.message, paged.queue), _message_value.pack(_rank_byte(paged), high, low)
        )
        self._reach(key[: _line_prefix.size], key)
        if paged.due:
            self._put_timed(_due_key_of(paged))
        if paged.expires:
            self._put_timed(_expires_key.pack(_EXPIRES, paged.expires, paged.message, paged.queue))
        if paged.passed:
            self._put_timed(_passed_key(paged))
        if len(batch) >= _BATCH_ENTRIES:
            self._flush()

    def _put_timed(self, key: bytes) -> None:
        self._batch.put(key, b"")
        self._reach(key[:1], key)

    def _reach(self, prefix: bytes, key: bytes) -> None:
        if key < self._starts.get(prefix, b"\xff"):
            self._starts[prefix] = key

    def remove(self, paged: Paged) -> None:
        batch = self._batch
        batch.delete(_key(paged))
        batch.delete(_message_key.pack(_MESSAGE, paged.message, paged.queue))
        if paged.due:
            batch.delete(_due_key_of(paged))
        if paged.expires:
            batch.delete(_expires_key.pack(_EXPIRES, paged.expires, paged.message, paged.queue))
        if paged.passed:
            batch.delete(_passed_key(paged))
        if len(batch) >= _BATCH_ENTRIES:
            self._flush()

    def _flush(self) -> None:
        batch = self._batch
        if len(batch):
            self._batch = WriteBatch(raw_mode=True)
            self._do("write", lambda: self._write(batch))

    def _write(self, batch: WriteBatch) -> None:
        self._room.wait()
        self._db.write(batch, self._lossy)
        self._room.ease()

    # ---- reading ---------------------------------------------------------------------------------------------------

    def page(self, queue: int, rank: int, limit: int) -> list[Paged]:
        """Take the first READY references of a line out of the index, without those that a take has passed over as
        expired."""
        prefix = _line_prefix.pack(_REFERENCE, queue, rank)
        found = [_paged(key, value) for key, value in self._rows(prefix, limit)]
        for paged in found:
            self.remove(paged)
        if len(found) < limit:
            self._starts.pop(prefix, None)
        else:
            self._starts[prefix] = _key(found[-1])
        return found

    def due(self, now_ms: int, limit: int) -> list[Paged]:
        """The SCHEDULED references that are due by now, the earliest first."""
        references = [_REFERENCE + key[9:] for key, _ in self._rows(_DUE, limit, _due_prefix(now_ms + 1))]
        return [_paged(reference, self._get(reference)) for reference in references]

    def next_due(self) -> int:
        """When the next SCHEDULED reference is due; 0 if there is none."""
        for key, _ in self._rows(_DUE, 1):
            return int.from_bytes(key[1:9])
        return 0

    def expired(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """The (message, queue) pairs that have expired by now, the earliest first. A reference that leaves meanwhile
        may still be in the result."""
        stop = _message_prefix.pack(_EXPIRES, now_ms + 1)
        rows = self._rows(_EXPIRES, _CHUNK_ROWS, stop)
        while rows:
            for key, _ in rows:
                _, _, message, queue = _expires_key.unpack(key)
                yield message, queue
            rows = self._chunk(rows[-1][0] + b"\0", stop, _CHUNK_ROWS)

    def passed(self, now_ms: int, limit: int) -> list[Paged]:
        """The references that a take has passed over as expired, but that have not expired at this time, because the
        clock was set back. The one that expires last comes first."""
        stop = _message_prefix.pack(_PASSED_BY, _LOW - now_ms)
        messages = [_MESSAGE + key[9:] for key, _ in self._rows(_PASSED_BY, limit, stop)]
        return [self._found(key, self._get(key)) for key in messages]

    def find(self, message: int) -> list[Paged]:
        """All references of a message."""
        return [self._found(*row) for row in self._rows(_message_prefix.pack(_MESSAGE, message), None)]

    def _found(self, key: bytes, value: bytes) -> Paged:
        """The reference to which one of its message's rows leads."""
        rank, high, low = _message_value.unpack(value)
        reference = _reference_key.pack(_REFERENCE, int.from_bytes(key[9:17]), rank, high, low)
        return _paged(reference, self._get(reference))

    def scan(self, queue: int, rank: int = 0, place: int = 0) -> list[Iterator[Paged]]:
        """The references of a queue from a place on, in runs, each in delivery order.

        A reference that comes or leaves meanwhile may be in the result or not.
        """
        return [self._run(queue, mark, rank, place) for mark in (0, _PASSED, _SCHEDULED)]

    def _run(self, queue: int, mark: int, rank: int, place: int) -> Iterator[Paged]:
        begin = _reference_key.pack(_REFERENCE, queue, mark | rank, place >> 64, place & _LOW)
        for each in range(rank, _RANK + 1):
            prefix = _line_prefix.pack(_REFERENCE, queue, mark | each)
            start = self._starts.get(prefix)
            if start is None:
                continue  # the index has no references of the queue there
            key, stop = max(start, begin), prefix + b"\xff" * 32
            while rows := self._chunk(key, stop, _CHUNK_ROWS):
                if key == start:
                    self._starts[prefix] = rows[0][0]
                for row in rows:
                    yield _paged(*row)
                key = rows[-1][0] + b"\0"

    def _rows(self, prefix: bytes, limit: int | None, stop: bytes = b"") -> list[_Row]:
        rows = self._chunk(self._starts.get(prefix, prefix), stop or prefix + b"\xff" * 32, limit)
        if rows and prefix in self._starts:
            self._starts[prefix] = rows[0][0]
        return rows

    def _chunk(self, start: bytes, stop: bytes, limit: int | None) -> list[_Row]:
        self._flush()
        return self._do("read", lambda: _read(self._db, start, stop, limit, self._directory))

    def _get(self, key: bytes) -> bytes:
        value: bytes | None = self._do("read", lambda: self._db.get(key))
        if value is None:
            self._failure = LocalStorageError(f"{self._directory} has lost row {key.hex()}")
            raise self._failure
        return value

    def close(self) -> None:
        """Close the index and free its disk space, also after a failed write."""
        self._room.close()
        del self._room, self._db  # dropping the last reference frees the lock on the directory
        self._clear()


def _read(db: Rdict, start: bytes, stop: bytes, limit: int | None, directory: Path) -> list[_Row]:
    """Options for reads up to a bound. The bound is given to RocksDB, because a cursor at the end of a prefix would
    otherwise go through all deleted rows behind it."""
    bound = ReadOptions()
    bound.set_iterate_upper_bound(stop)
    cursor = db.iter(bound)
    cursor.seek(start)
    valid, key_of, value_of, step = cursor.valid, cursor.key, cursor.value, cursor.next
    rows: list[_Row] = []
    while (limit is None or len(rows) < limit) and valid():
        rows.append((key_of(), value_of()))
        step()
    if not valid():
        check_cursor(cursor, directory)
    return rows


def _rank_byte(paged: Paged) -> int:
    return paged.rank | (_SCHEDULED if paged.due else 0) | (_PASSED if paged.passed else 0)


def _key(paged: Paged) -> bytes:
    return _reference_key.pack(_REFERENCE, paged.queue, _rank_byte(paged), paged.place >> 64, paged.place & _LOW)


def _due_key_of(paged: Paged) -> bytes:
    return _due_prefix(paged.due) + _key(paged)[1:]


def _passed_key(paged: Paged) -> bytes:
    return _expires_key.pack(_PASSED_BY, _LOW - paged.expires, paged.message, paged.queue)


def _due_prefix(due: int) -> bytes:
    return _message_prefix.pack(_DUE, due)


def _paged(key: bytes, value: bytes) -> Paged:
    _, queue, rank, high, low = _reference_key.unpack(key)
    message, due, expires = _reference_head.unpack_from(value)
    data, passed = value[_reference_head.size :], bool(rank & _PASSED)
    return Paged(queue, rank & _RANK, high << 64 | low, due, message, expires, data, passed)
