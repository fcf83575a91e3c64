"""Reads single records while a journal is active: from the local copy, or from the WAL while the copy does not have
them yet."""

from __future__ import annotations

import threading
import time

from journal.activate.copy import TableCopy
from journal.errors import ClosedError, DeadlineError, GapError
from journal.kafka.ports import Kafka
from journal.process.clocks import Clock
from journal.v1.journal_pb2 import ADD, Identity, Record
from journal.wal.reading import WalReader
from journal.wire.ids import shard_of
from journal.wire.keys import record_key

_PAUSE_S = 0.02
"""The pause between two looks at the copy's marks."""


class Lookup:
    """Reads single records of one journal. Thread-safe."""

    def __init__(self, kafka: Kafka, journal: str, identity: Identity, copy: TableCopy, clock: Clock) -> None:
        """`copy` is not closed with the lookup."""
        self._kafka = kafka
        self._journal = journal
        self._identity = identity
        self._copy = copy
        self._clock = clock
        self._lock = threading.Lock()
        self._wal: WalReader | None = None
        self._closed = False

    def read(self, record_id: int) -> bytes | None:
        """The data of a record in the local copy; None if it has none of that id (yet).

        Raises LocalStorageError while the copy is closed or reopened, ClosedError after `close`.
        """
        self._check_open()
        row = self._copy.get(record_key(record_id))
        return None if row is None else Record.FromString(row).data

    def applied(self, shard: int) -> int:
        """The WAL offset of the mark that the local copy stands at; -1 before the first. Raises ClosedError."""
        self._check_open()
        return self._copy.mark(shard).offset

    def read_at(self, record_id: int, offsets: tuple[int, int], timeout_s: float) -> bytes | None:
        """The data of a record that a frame between two WAL offsets (first and last) of its shard adds. If these frames
        were trimmed, it waits until the copy has reached them, and gives the copy's data. Raises DeadlineError."""
        until = self._clock() + timeout_s
        shard = shard_of(record_id, self._identity.shards)
        try:
            return self._read_wal(record_id, shard, offsets, timeout_s)
        except GapError as error:
            # only frames that the tables have already are trimmed, so the copy will have them
            while self.applied(shard) < offsets[1]:
                if self._clock() >= until:
                    raise DeadlineError(f"the local copy lacks what was trimmed: {error}") from error
                time.sleep(_PAUSE_S)
            return self.read(record_id)

    def _read_wal(self, record_id: int, shard: int, offsets: tuple[int, int], timeout_s: float) -> bytes | None:
        first, last = offsets
        with self._lock:
            self._check_open()
            if self._wal is None:
                identity = self._identity
                self._wal = WalReader(self._kafka, self._journal, identity.journal, identity.shards, self._clock)
            for _, frame in self._wal.frames(shard, first, last + 1, timeout_s):
                for op in frame.operations():
                    if op.id == record_id and op.type == ADD:
                        return op.data
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the journal was closed")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._wal is not None:
                self._wal.close()
                self._wal = None
