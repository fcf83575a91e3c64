"""What a replica and a worker ask of their local storage. RocksDB implements it; the simulation has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from journal.fold.rows import Base, Change


class Snapshot(Base, Protocol):
    """A moment of a store: what is written later is not seen."""

    def close(self) -> None: ...


class LocalStore(Base, Protocol):
    """Rows (as a `Base`) and a few named values. One process, one writing thread."""

    def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
        """Make rows ready, and write nothing: what this gives is `write` for them, which has less to do then. For one
        call, or none; the store stays open as long as this is kept."""

    def write(self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True) -> None:
        """One batch: after a killed process, all of it is there or nothing. Raises LocalStorageError.

        With `durable` false it may be lost as a whole by a killed process, until `flush`.
        """

    def named(self, name: bytes) -> bytes | None:
        """A named value."""

    def highest_record(self) -> int:
        """The largest id of a record that has a row; 0 if none has."""

    def flush(self) -> None:
        """Everything written so far survives a killed process."""

    def snapshot(self) -> Snapshot: ...

    def clear(self) -> None:
        """Drop everything: the store is as new, and made for being filled rather than read until the next `flush`."""

    def close(self) -> None: ...
