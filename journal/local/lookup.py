"""Reads records of a journal in a local RocksDB while its writer writes."""

from __future__ import annotations

import threading

from journal.disk.rocks import RocksStore
from journal.errors import ClosedError, LocalStorageError
from journal.local.writer import LocalWriter
from journal.v1.journal_pb2 import Record
from journal.wire.keys import record_key


class LocalLookup:
    """Reads records of the store while its writer writes. Thread-safe."""

    def __init__(self, store: RocksStore, writer: LocalWriter) -> None:
        self._writer = writer
        self._store = store
        self._lock = threading.Lock()
        self._closed = False

    def read(self, record_id: int) -> bytes | None:
        """The data of a record whose group is committed; None if there is none. Raises LocalStorageError."""
        with self._lock:
            self._require_open()
            try:
                row = self._store.get(record_key(record_id))
            except Exception as error:  # rocksdict raises bare exceptions for all errors of RocksDB
                raise LocalStorageError(f"cannot read record {record_id}: {error}") from error
        return None if row is None else Record.FromString(row).data

    def read_at(self, record_id: int, offsets: tuple[int, int], timeout_s: float) -> bytes | None:
        """The data of a record. The offsets are not used, because there is no WAL and every record is in the store."""
        return self.read(record_id)

    def applied(self, shard: int) -> int:
        """The offset of the last frame in the store, -1 before the first. Raises ClosedError."""
        self._require_open()
        return self._writer.applied(shard)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the journal was closed")

    def close(self) -> None:
        with self._lock:
            self._closed = True
