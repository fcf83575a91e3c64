"""What was computed from names and keys before, kept because most come again.

They are the senders': any number of them, of any length, and some are refused later. So what is kept is bounded in
bytes, and what is long is mostly not kept at all.
"""

from __future__ import annotations

from typing import TypeVar

KEPT_BYTES_MAX = 4 * 2**20
"""Of one table: some ten thousand short names."""
_ENTRY_BYTES = 256
"""What an entry takes beside its key's and value's own bytes, in objects."""
_ENTRY_BYTES_MAX = 1024

_K = TypeVar("_K")
_V = TypeVar("_V")


class Kept(dict[_K, _V]):
    """Values by key. Hot path: it is looked up as any dictionary, by any number of threads."""

    __slots__ = ("_bytes", "_bytes_max", "_entry_bytes_max")

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX, *, entry_bytes_max: int = _ENTRY_BYTES_MAX) -> None:
        super().__init__()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._entry_bytes_max = entry_bytes_max

    def keep(self, key: _K, value: _V, size: int) -> _V:
        """The value, kept if it and its key are short: they have `size` bytes. All others go when there is no room."""
        if size <= self._entry_bytes_max:
            self._bytes += size + _ENTRY_BYTES
            if self._bytes > self._bytes_max:
                self.clear()
                self._bytes = size + _ENTRY_BYTES
            self[key] = value
        return value
