"""Completions: what an append returns. All operations of a group share one object.

A completion can be awaited (any event loop, any number of tasks), waited for in a thread, or called back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress

from journal.append.callbacks import in_callback, require_no_callback
from journal.errors import DeadlineError, JournalError
from journal.process.waits import waited

log = logging.getLogger(__name__)

_ENDS = "the brokers must answer, with as many replicas in sync as min.insync.replicas demands"


class Completion:
    """The outcome of a group. It is done when the group's fate is known, and without an error only if Kafka committed
    it.
    """

    __slots__ = ("_callbacks", "_condition", "_done", "_error", "_waiters", "offsets")

    def __init__(self) -> None:
        self.offsets: Mapping[int, tuple[int, int]] = {}
        """The first and last WAL offset of the group's frames, for each shard that the group touched. Empty until the
        completion is done, and for a recovered group, whose offsets Kafka did not tell."""
        self._done = False
        self._error: JournalError | None = None
        self._condition = threading.Condition(threading.Lock())
        self._waiters: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        self._callbacks: list[Callable[[JournalError | None], None]] = []

    @property
    def done(self) -> bool:
        return self._done

    @property
    def error(self) -> JournalError | None:
        """The reason for which the group is not in the journal, or not known to be. None while the completion is
        pending, and after success."""
        return self._error

    def resolve(self, error: JournalError | None = None) -> None:
        """Tell the outcome, once. The writer calls this."""
        with self._condition:
            if self._done:
                raise AssertionError("a group's outcome was told twice")
            self._error = error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for loop, futures in tuple(self._waiters.items()):
            with suppress(RuntimeError):  # the event loop was closed, so nobody waits in it any more
                loop.call_soon_threadsafe(_release, futures)
        if callbacks:
            self._call_back(callbacks)

    def _call_back(self, callbacks: Iterable[Callable[[JournalError | None], None]]) -> None:
        with in_callback():
            for callback in callbacks:
                try:
                    callback(self._error)
                # the callback is the user's code; after an error of it the others must still be called
                except Exception:
                    log.exception("a completion's callback failed")

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until it is done. Raises the group's error, or DeadlineError after `timeout_s`.

        In a completion's callback it raises CallbackError instead of blocking."""
        if not self._done:
            require_no_callback("wait for a completion")
            if not waited(self._wait, timeout_s, "Kafka to commit a group", _ENDS):
                raise DeadlineError(f"the group was not committed within {timeout_s} s; it still may be")
        if self._error is not None:
            raise self._error.again()

    def _wait(self, timeout_s: float | None) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self._done, timeout_s)

    def add_callback(self, callback: Callable[[JournalError | None], None]) -> None:
        """Call `callback(error)` once it is done: in the writer's thread, or now if it is done already. The callback
        must be quick. It may append to the journal; calls that may wait, such as a store's, raise CallbackError in it.

        An error that it raises in the writer's thread is logged.
        """
        with self._condition:
            if not self._done:
                self._callbacks.append(callback)
                return
        with in_callback():
            callback(self._error)

    def __await__(self) -> Generator[object, None, None]:
        """Hot path, without the lock: it adds its future first, and only then looks at `_done` again. So `resolve`,
        which sets `_done` before it takes the futures, misses none."""
        if not self._done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self._waiters.setdefault(loop, []).append(future)
            if not self._done:
                yield from future
        if self._error is not None:
            raise self._error.again()


def completed(error: JournalError | None = None) -> Completion:
    """A completion that is done already, for a call that appends nothing, such as the rollback of a buffered
    transaction."""
    completion = Completion()
    completion.resolve(error)
    return completion


def _release(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
    futures.clear()
