"""The types at the edges of a fold: the rows that it starts from, the changes that it gives, and the operations that
happened. `journal.fold.engine` makes rows of frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from journal.v1.journal_pb2 import Operation


class Base(Protocol):
    """The rows as of the last mark: those of a local RocksDB, of a snapshot of one, or of a dictionary."""

    def get(self, key: bytes) -> bytes | None:
        """The row's value; None if there is no row."""

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Rows whose keys start with `prefix`, in the order of their keys."""


Change = tuple[bytes, bytes | None]
"""A row's key and its new value; None is a tombstone."""


Happened = tuple[Operation, int, int, int]
"""An operation that took effect, and its position (offset, index, ordinal). A staged operation takes effect when its
transaction commits."""


Added = tuple[int, int, bytes, int]
"""A record that was added: its id, kind and data, and the WAL offset of the frame with which it took effect."""
