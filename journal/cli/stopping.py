"""How a process that serves until it is told to stop handles SIGTERM and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from journal.cli.common import print_note
from journal.process.stop_requests import STOP_SIGNALS, StopRequests

BEHIND_THE_BATCH = "ending after this batch; again, and it stops now: the next run does the batch anew"
"""The text with which a Spark job answers the signal."""


@contextmanager
def stopped_by_signals(answer: str = "") -> Iterator[threading.Event]:
    """An event that SIGTERM or Ctrl-C sets. A signal that comes more than a second later ends the process at once,
    which is safe at any time. `answer` is printed on standard error as soon as the first signal comes.

    This is for the main thread. A signal handler must not set the event: it interrupts the main thread, which may hold
    the event's lock on its way into `wait`, so the handler would wait for that lock for ever. Nor may the main thread
    wait for a handler: if the signal comes just before it begins to wait, the handler runs only after the wait. So a
    thread sets the event, once the interpreter has written to a pipe that a signal has arrived.
    """
    stop = threading.Event()
    requests = StopRequests()

    def on_signal(number: int, _frame: object) -> None:
        requests.hear(number)

    def tell() -> None:
        while arrived := os.read(reader, 1):
            if arrived[0] in STOP_SIGNALS and not stop.is_set():
                stop.set()
                if answer:
                    print_note(answer)

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    told_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS}
    thread = threading.Thread(target=tell, name="kafka-journal-signals", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(told_before)
        os.close(writer)
        thread.join()
        os.close(reader)
