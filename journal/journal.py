"""`Journal`: the journal of a broker node, with appends from asyncio or from threads and group commits in its own
thread.

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

from journal.activate.activation import ActivationReport
from journal.activate.copy import TableCopy
from journal.activate.gate import AtGate, wait_on
from journal.activate.runtime import JournalRuntime
from journal.append.appends import Appends
from journal.errors import JournalError
from journal.load.loading import Loader
from journal.process.progress import Progress, no_progress
from journal.settings import JournalSettings


class BlockingJournal(JournalRuntime, Appends):
    """A journal for callers without asyncio. An append waits for room in a full queue (`room_timeout_ms`)."""

    def __init__(
        self,
        settings: JournalSettings,
        *,
        on_critical: Callable[[JournalError], None] | None = None,
        copy: TableCopy | None = None,
        copy_name: str = "node",
        progress: Progress = no_progress,
        at_gate: AtGate = wait_on,
    ) -> None:
        """See `JournalRuntime` for the arguments."""
        super().__init__(
            settings,
            on_critical=on_critical,
            copy=copy,
            copy_name=copy_name,
            progress=progress,
            at_gate=at_gate,
            room_wait_s=settings.room_timeout_ms / 1000,
        )

    def activate(self, loader: Loader | None = None) -> ActivationReport:
        """Become the active node, and tell the state to `loader`. Raises FencedError, GateTimeoutError, or what the
        loader raises.

        Without `loader`, the state goes to the loader that follows the journal's `copy`, if there is one. That loader
        already has most of the state, so it is told only the newest changes.
        After a GateTimeoutError or an error of the loader, this method may be called again.
        """
        return self.run_activation(loader)

    def __enter__(self) -> BlockingJournal:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Journal(JournalRuntime, Appends):
    """A journal with an asyncio lifecycle. Appends never block: a full queue raises FullError at once."""

    @classmethod
    def open(
        cls,
        settings: JournalSettings,
        *,
        on_critical: Callable[[JournalError], None] | None = None,
        copy: TableCopy | None = None,
        copy_name: str = "node",
        progress: Progress = no_progress,
    ) -> Journal:
        """A journal for `async with`, which starts and closes it; see `JournalRuntime` for the arguments."""
        return cls(settings, on_critical=on_critical, copy=copy, copy_name=copy_name, progress=progress)

    async def activate(self, loader: Loader | None = None) -> ActivationReport:
        """Become the active node, off the event loop; see `BlockingJournal.activate`.

        If the call is cancelled, the activation goes on in its thread until `close` (the end of `async with`) stops it
        and waits for its end.
        """
        return await asyncio.to_thread(self.run_activation, loader)

    async def __aenter__(self) -> Journal:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            # after a cancel the opening goes on in its thread, so the journal that it opens must be closed here
            await asyncio.to_thread(self.close)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
