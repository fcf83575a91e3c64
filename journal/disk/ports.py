"""The protocols of local storage. RocksDB implements them, and so does the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from journal.fold.rows import Base, Change


class Snapshot(Base, Protocol):
    """A store's rows at one moment. Later writes do not show in it."""

    def close(self) -> None: ...


class LocalStore(Base, Protocol):
    """Rows (as a `Base`) and a few named values. One process uses it, and one thread writes."""

    def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
        """Prepare a batch of rows without writing it; returns a function that writes it, in less time than `write`
        takes. Call the function at most once; the store stays open as long as a reference to it exists."""

    def write(self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True) -> None:
        """Write one batch: after a killed process, all of it is there or nothing. Raises LocalStorageError.

        With `durable` false, a killed process may lose the batch as a whole until `flush` is called.
        """

    def named(self, name: bytes) -> bytes | None:
        """The value of this name; None if there is none."""

    def highest_record(self) -> int:
        """The largest id of a record that has a row; 0 if none has."""

    def flush(self) -> None:
        """Make everything written so far survive a killed process."""

    def snapshot(self) -> Snapshot: ...

    def clear(self) -> None:
        """Drop all rows and values. The store is then empty, and set up for being filled rather than read until the
        next `flush`."""

    def close(self) -> None: ...
