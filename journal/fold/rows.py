"""What the fold gives: changes of rows, and what happened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from journal.v1.journal_pb2 import Operation


class Base(Protocol):
    """Rows as of the last mark: a local RocksDB, a snapshot of one, or a dictionary."""

    def get(self, key: bytes) -> bytes | None:
        """The row's value, None where there is no row."""

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Rows whose key starts with `prefix`, in key order."""


Change = tuple[bytes, bytes | None]
"""A row's key and its new value; None is a tombstone."""


Happened = tuple[Operation, int, int, int]
"""An operation that took effect and its position (offset, index, ordinal). Staged ones happen when they commit."""


Added = tuple[int, int, bytes, int]
"""A record that was added: id, kind, data, and the WAL offset of the frame with which it took effect."""
