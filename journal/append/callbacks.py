"""Callbacks of completions: they may not wait, and a call that would wait is refused in them.

A callback runs in the thread that writes groups, or in the caller's thread if the completion is done already. If a
callback waited in the writing thread, that thread would wait for itself, and no group and no heartbeat would be
written. So every call of ours that may wait is refused in a callback, in every thread, so that the mistake shows at the
first call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from journal.errors import CallbackError

telling: set[int] = set()
"""Threads that are running a callback. Hot path: the set is usually empty, and then a truth test is enough."""


_unwaiting: set[int] = set()
"""Threads whose appends never wait for room."""


@contextmanager
def without_waits() -> Iterator[None]:
    """Have no append of this thread wait for room: a full journal raises FullError at once. It is for a thread that
    runs an event loop."""
    thread = threading.get_ident()
    _unwaiting.add(thread)
    try:
        yield
    finally:
        _unwaiting.discard(thread)


def never_waits() -> bool:
    """Whether the caller must not wait for room: it runs in a callback, or within `without_waits`."""
    thread = threading.get_ident()
    return thread in telling or thread in _unwaiting


@contextmanager
def in_callback() -> Iterator[None]:
    """Encloses calls of callbacks. A callback may complete something else, so these calls may be nested."""
    thread = threading.get_ident()
    outermost = thread not in telling
    telling.add(thread)
    try:
        yield
    finally:
        if outermost:
            telling.discard(thread)


def is_callback() -> bool:
    """Whether the caller runs in a callback."""
    return threading.get_ident() in telling


def require_no_callback(what: str) -> None:
    """Raises CallbackError if the caller runs in a callback; `what` is the name of the refused act."""
    if telling and is_callback():
        raise CallbackError(
            f"a completion's callback cannot {what}: have another thread do it (in an event loop: call_soon_threadsafe)"
        )


class CallersLock:
    """A lock that no callback can take, so that its holder may wait for the thread that runs callbacks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        require_no_callback("call what others may be waiting in")
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
