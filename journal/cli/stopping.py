"""What SIGTERM and Ctrl-C ask of a process that serves until it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from journal.cli.common import print_note
from journal.process.stop_requests import STOP_SIGNALS, StopRequests

BEHIND_THE_BATCH = "stopping behind what is being written; again, and it ends at once: the next run does that anew"
"""What a Spark job answers."""


@contextmanager
def stopped_by_signals(answer: str = "") -> Iterator[threading.Event]:
    """An event that SIGTERM or Ctrl-C sets. One that comes more than a second later ends the process at once: whatever
    it was doing is safe. `answer` is said on standard error as soon as the first one comes.

    For the main thread. No handler may set the event itself: it interrupts the main thread, which may just then hold
    the event's lock, on its way into `wait`, and would wait for that lock for ever. Nor may anybody wait for a handler:
    one whose signal came a moment before the main thread began to wait runs when that has ended. So a thread sets the
    event, told by what the interpreter writes to a pipe as a signal arrives.
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
