"""What a completion's callback may not do: wait.

Callbacks run in the thread that writes groups, or in that of whoever asks for a completion that is done. In the first
one a wait would be for itself: no group is written meanwhile, and no heartbeat. So nothing of ours waits in a callback;
it is refused at once, whichever thread that is, so that a caller's mistake shows at its first call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from journal.errors import CallbackError

telling: set[int] = set()
"""Threads that are in a callback. Hot path: mostly there is none, which its truth says."""


@contextmanager
def in_callback() -> Iterator[None]:
    """Around calls of callbacks. One may complete something else, whose callbacks are then called in the midst."""
    thread = threading.get_ident()
    outermost = thread not in telling
    telling.add(thread)
    try:
        yield
    finally:
        if outermost:
            telling.discard(thread)


def is_callback() -> bool:
    """Whether a callback is what asks."""
    return threading.get_ident() in telling


def require_no_callback(what: str) -> None:
    """Returns if it may wait. Raises CallbackError."""
    if telling and is_callback():
        raise CallbackError(
            f"a completion's callback cannot {what}: have another thread do it (in an event loop: call_soon_threadsafe)"
        )


class CallersLock:
    """A lock that no callback takes: whoever has it may wait for the thread that calls back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        require_no_callback("call what others may be waiting in")
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
