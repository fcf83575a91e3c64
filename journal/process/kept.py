"""A bounded table of results that were computed from names and keys, because most of these come again.

Senders choose the names: there may be any number of them, of any length, and some are refused later. So the table is
bounded in bytes, and long entries are not kept.
"""

from __future__ import annotations

import threading
from typing import TypeVar

KEPT_BYTES_MAX = 4 * 2**20
"""Default bound of one table, which holds some ten thousand short names."""
_ENTRY_BYTES = 256
"""Bytes that an entry takes in objects, besides its key's and its value's own bytes."""
_ENTRY_BYTES_MAX = 1024

_K = TypeVar("_K")
_V = TypeVar("_V")


class Kept(dict[_K, _V]):
    """Results by key, for any number of threads. Hot path: a lookup is a dictionary's, without a lock."""

    __slots__ = ("_bytes", "_entry_bytes_max", "_lock", "bytes_max")

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX, *, entry_bytes_max: int = _ENTRY_BYTES_MAX) -> None:
        super().__init__()
        self._bytes = 0
        self._lock = threading.Lock()
        self.bytes_max = bytes_max
        """Bytes that all entries together may take."""
        self._entry_bytes_max = entry_bytes_max

    def keep(self, key: _K, value: _V, size: int) -> _V:
        """Keep a value if it and its key are short (together they have `size` bytes), and return it. If the table is
        full, all other entries are dropped."""
        if size <= self._entry_bytes_max:
            with self._lock:
                self._bytes += size + _ENTRY_BYTES
                if self._bytes > self.bytes_max:
                    self.clear()
                    self._bytes = size + _ENTRY_BYTES
                self[key] = value
        return value
