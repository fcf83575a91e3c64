"""A worker that runs in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from journal.errors import DeadlineError
from streams.reading.app import serve
from streams.reading.group_settings import GroupSettings
from streams.reading.shell import WorkerShell


class BackgroundWorker:
    """A worker in a thread of this process."""

    def __init__(self, shell: WorkerShell, settings: GroupSettings) -> None:
        self._shell = shell
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._running: Future[None] | None = None

    def start(self, timeout_s: float) -> None:
        """Return when the worker reads its shards or has failed; `stop` tells which."""
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")
        self._running = executor.submit(self._run)
        executor.shutdown(wait=False)
        if not self._started.wait(timeout_s):
            raise DeadlineError(f"the worker did not join {self._settings.group_id} in {timeout_s} s")

    def wait(self, timeout_s: float) -> None:
        """Wait for a worker that ends by itself, and raise its error."""
        if self._running is not None:
            self._running.result(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Stop the worker cleanly. Raises the error that ended it before."""
        if self._running is not None and not self._running.done():
            self._loop.call_soon_threadsafe(self._stop.set)
        self.wait(timeout_s)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve(self._shell, self._settings, self._stop, self._started.set))
