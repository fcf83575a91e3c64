"""Makes a writer wait while the disk is slower than the writes.

RocksDB would slow its writer down or stop it by itself. But rocksdict waits with Python's interpreter lock held, so
that no other thread runs meanwhile: no commit, and no heartbeat of a membership. So RocksDB's own limits are set out of
reach (`rocks_options`), it takes all data into memory, and `Room` makes the writer wait before each write, with the
lock released.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from rocksdict import Rdict

from journal.disk.rocks_options import BUFFERS_BYTES, BUFFERS_WAITING_MAX, LEVEL_ZERO_FILES_MAX, write_buffers
from journal.errors import LocalStorageError

log = logging.getLogger(__name__)

ROOM_TIMEOUT_S = 600.0
"""The longest time that a store waits for a disk that writes nothing."""

_LOOK_S = 0.002


class Room:
    """Waits until the tables of one store may be written. All methods but `ease` may wait. They let RocksDB's
    exceptions pass.

    RocksDB gives up its lock on the directory with the last reference to a table. So no local variable here holds a
    table: an error that somebody keeps would keep its frames, and the table with them.
    """

    def __init__(self, directory: Path, db: Rdict, tables: Sequence[Rdict]) -> None:
        self._directory = directory
        self._db: list[Rdict] = [db, db.get_column_family("default")]
        """Two references to the same database. `close` closes the first one, and then stops RocksDB's background jobs
        through the second one."""
        self._tables = list(tables)
        self._errors = 0
        """Number of background errors that RocksDB has recovered from. All data given to it before them is in files."""

    def wait(self) -> None:
        """Wait until there is room. A store that has failed does not wait: its next write raises the error."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        while not self._is_there() and not self._has_failed():
            self._pause(until)

    def ease(self) -> None:
        """Call this after a write. If all stores together hold too much in memory, RocksDB writes it to disk. So a
        store that gets no more writes does not block the others."""
        if not self._largest("num-immutable-mem-table"):
            self._errors = self._background_errors()
        if write_buffers().get_usage() > BUFFERS_BYTES:
            self._begin_flush()

    def flush(self) -> None:
        """Wait until all written data is in files."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        self._begin_flush()
        while self._largest("num-immutable-mem-table") and not self._has_failed():
            self._pause(until)
        for number in range(len(self._tables)):
            self._tables[number].flush()  # nothing is left to flush, or this raises RocksDB's error

    def close(self) -> None:
        """Close the tables, and ignore errors. Rows that are in no table file yet are in the store's log.

        No file is made in the directory afterwards, even while a cursor keeps RocksDB open. When that cursor ends,
        obsolete files are deleted.
        """
        met = ""
        for end in (self.flush, *(table.close for table in self._tables), self._db[0].close, self._stop):
            try:
                end()
            except Exception as error:  # noqa: BLE001  # rocksdict raises it for everything that RocksDB says
                met = met or str(error)
        self._tables.clear()
        self._db.clear()
        if met:
            log.warning("%s was not closed cleanly: %s", self._directory, met)

    def _stop(self) -> None:
        until = time.monotonic() + ROOM_TIMEOUT_S
        self._db[1].cancel_all_background(False)
        while any(self._db[1].property_int_value(f"rocksdb.num-running-{what}") for what in ("compactions", "flushes")):
            self._pause(until)
        self._db[1].cancel_all_background(True)  # jobs that have not begun are dropped at once

    def _begin_flush(self) -> None:
        for number in range(len(self._tables)):
            self._tables[number].flush(wait=False)

    def _is_there(self) -> bool:
        return (
            write_buffers().get_usage() < 2 * BUFFERS_BYTES
            and self._largest("num-immutable-mem-table") < BUFFERS_WAITING_MAX
            and self._largest("num-files-at-level0") < LEVEL_ZERO_FILES_MAX
        )

    def _has_failed(self) -> bool:
        return self._background_errors() > self._errors

    def _background_errors(self) -> int:
        return self._db[0].property_int_value("rocksdb.background-errors") or 0

    def _largest(self, name: str) -> int:
        return max(table.property_int_value(f"rocksdb.{name}") or 0 for table in self._tables)

    def _pause(self, until: float) -> None:
        if time.monotonic() >= until:
            raise LocalStorageError(f"{self._directory}: its disk has taken nothing for {ROOM_TIMEOUT_S:g} s")
        time.sleep(_LOOK_S)
