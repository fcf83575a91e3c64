"""`Journal`: what a broker node uses. Appends from asyncio or from threads, group commits in a thread of its own.

    async with Journal.open(settings) as journal:
        await journal.activate(loader)
        await journal.add(journal.new_id(), kind=45, data=b"...")

Appends are accepted at once and give a `Completion`; `await` it, or `.wait()` in a thread, to know that Kafka has
committed it. `BlockingJournal` is the same without asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from journal.activation import ActivationReport, Progress
from journal.completion import Completion
from journal.config import Settings
from journal.errors import JournalError, RecordMissingError
from journal.loading import Loader
from journal.runtime import JournalRuntime, no_progress


class Appends(JournalRuntime):
    """Appends, the same for both. Thread-safe."""

    def new_id(self, virtual_shard: int = 0) -> int:
        """An id that no record has had; records of one virtual shard (0 to 1023) share a shard, and so an order."""
        return self.require_core().new_id(virtual_shard)

    def add(self, record_id: int, kind: int, data: bytes, *, tx: int = 0) -> Completion:
        """Add a record. Raises RecordExistsError, LockedError, FullError, InvalidOperationError, StateError."""
        return self.require_core().add(record_id, kind, data, tx)

    def update(
        self, record_id: int, kind: int, data: bytes, *, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion:
        """Attach data to a record; a replaceable update replaces that of the same kind and subject.

        Raises RecordMissingError, and what `add` raises.
        """
        return self.require_core().update(record_id, kind, data, replaceable, subject, tx)

    def delete(self, record_id: int, *, tx: int = 0) -> Completion:
        """Delete a record with its updates. Raises RecordMissingError, and what `add` raises."""
        return self.require_core().delete(record_id, tx)

    def try_update(
        self, record_id: int, kind: int, data: bytes, *, replaceable: bool = False, subject: int = 0, tx: int = 0
    ) -> Completion | None:
        """`update`, or None if there is no such record."""
        try:
            return self.update(record_id, kind, data, replaceable=replaceable, subject=subject, tx=tx)
        except RecordMissingError:
            return None

    def try_delete(self, record_id: int, *, tx: int = 0) -> Completion | None:
        """`delete`, or None if there is no such record."""
        try:
            return self.delete(record_id, tx=tx)
        except RecordMissingError:
            return None

    def begin(self, tx: int | None = None) -> int:
        """Begin a transaction: `tx`, or a number that is free. An operation with a new `tx` begins it too."""
        return self.require_core().begin(tx)

    def prepare(self, tx: int, data: bytes = b"") -> Completion:
        """Make `tx` wait, through every crash, for commit or rollback. `data` names it (an xid)."""
        return self.require_core().prepare(tx, data)

    def commit(self, tx: int) -> Completion:
        """Make the operations of `tx` take effect. Raises TransactionUnknownError."""
        return self.require_core().commit(tx)

    def rollback(self, tx: int) -> Completion:
        """Drop the operations of `tx`. Raises TransactionUnknownError."""
        return self.require_core().rollback(tx)

    def room(self) -> Completion:
        """Done when the queue has room again, first come first served."""
        return self.require_core().room()

    def flush(self) -> Completion:
        """Done when everything accepted so far is committed."""
        return self.require_core().flush()


class BlockingJournal(Appends):
    """A journal for callers without asyncio. An append waits for room in a full queue (`room_timeout_ms`)."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_critical: Callable[[JournalError], None] | None = None,
        copy_name: str = "node",
        progress: Progress = no_progress,
    ) -> None:
        """See `JournalRuntime` for the arguments."""
        super().__init__(
            settings,
            on_critical=on_critical,
            copy_name=copy_name,
            progress=progress,
            room_wait_s=settings.room_timeout_ms / 1000,
        )

    def activate(self, loader: Loader | None = None) -> ActivationReport:
        """Become the active node; `loader` is told the state. Raises FencedError, GateTimeoutError, or what it raises.

        After a GateTimeoutError or the loader's error it may be called again.
        """
        return self.run_activation(loader)

    def __enter__(self) -> BlockingJournal:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Journal(Appends):
    """A journal with an asyncio lifecycle. Appends never block: a full queue raises FullError at once."""

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        on_critical: Callable[[JournalError], None] | None = None,
        copy_name: str = "node",
        progress: Progress = no_progress,
    ) -> Journal:
        """A journal for `async with`, which starts and closes it; see `JournalRuntime` for the arguments."""
        return cls(settings, on_critical=on_critical, copy_name=copy_name, progress=progress)

    async def activate(self, loader: Loader | None = None) -> ActivationReport:
        """Become the active node, off the event loop; see `BlockingJournal.activate`."""
        return await asyncio.to_thread(self.run_activation, loader)

    async def __aenter__(self) -> Journal:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
