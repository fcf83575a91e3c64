"""Room for what is written: a store waits here for its disk.

RocksDB slows a writer down, or stops it, when its disk takes less than is written; rocksdict waits for that, and for
flushes, with Python's lock in its hand, so that no other thread runs: no commit, no heartbeat of a membership. So
RocksDB's limits are out of reach (`rocks_options`): it takes into memory all that it is given, and is given more only
when this says that there is room.
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
"""How long a store waits for a disk that takes nothing."""

_LOOK_S = 0.002


class Room:
    """That of one store's tables. Methods but `ease` may wait; what RocksDB raises is the caller's to read.

    The lock on the store's directory goes with the last reference to a table. So none is in a frame here: an error that
    somebody keeps would keep it too.
    """

    def __init__(self, directory: Path, db: Rdict, tables: Sequence[Rdict]) -> None:
        self._directory = directory
        self._db: list[Rdict] = [db, db.get_column_family("default")]
        """The second one is left when all else is closed."""
        self._tables = list(tables)
        self._errors = 0
        """Errors in the background that RocksDB got over: all that it was given before is in files."""

    def wait(self) -> None:
        """Until there is room. A store that has failed has room: it says what it met when it is written."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        while not self._is_there() and not self._has_failed():
            self._pause(until)

    def ease(self) -> None:
        """After a write: have what all stores hold in memory written to disk, if it is more than they may. So a store
        that is then not written any more holds up no other."""
        if not self._largest("num-immutable-mem-table"):
            self._errors = self._background_errors()
        if write_buffers().get_usage() > BUFFERS_BYTES:
            self._begin_flush()

    def flush(self) -> None:
        """Until all that was written is in files."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        self._begin_flush()
        while self._largest("num-immutable-mem-table") and not self._has_failed():
            self._pause(until)
        for number in range(len(self._tables)):
            self._tables[number].flush()  # nothing is left to do, or it raises what was met

    def close(self) -> None:
        """Close the tables, whatever that meets: what is in no file of its own is in the store's log.

        From then on no file comes to the directory, also while somebody's cursor keeps RocksDB open; with that one goes
        what is of no use.
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
        self._db[1].cancel_all_background(True)  # those that had not begun end at once

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
