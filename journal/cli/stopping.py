"""What SIGTERM and Ctrl-C ask of a process that serves until it is told to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ONE_REQUEST_S = 1.0
"""Signals within it are one request: who stops a process may signal it and then its group, as `timeout` does."""


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM or Ctrl-C sets. One that comes more than a second later ends the process at once: whatever
    it was doing is safe.

    For the main thread. No handler may set the event itself: it interrupts the main thread, which may just then hold
    the event's lock, on its way into `wait`, and would wait for that lock for ever. So a thread sets it, told through a
    queue whose `put` may interrupt anything.
    """
    stop = threading.Event()
    told: SimpleQueue[bool] = SimpleQueue()

    asked: list[float] = []

    def on_signal(number: int, _frame: object) -> None:
        if not asked:
            asked.append(time.monotonic())
            told.put(True)
        elif time.monotonic() - asked[0] >= _ONE_REQUEST_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def tell() -> None:
        if told.get():
            stop.set()

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    thread = threading.Thread(target=tell, name="kafka-journal-signals", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        told.put(False)
        thread.join()
