"""A node that runs a seeded workload, and writes down what it submits and what it is told of it.

Arguments: HISTORY SEED OPERATIONS. It activates the journal of its environment, appends (without end if OPERATIONS is
0) and is idle afterwards; it closes cleanly when its standard input ends. A submission's line precedes the call, an
outcome's follows it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

from journal.config import load_settings
from journal.errors import FencedError, JournalError
from journal.journal import BlockingJournal
from tests.support.children.appending import Appending
from tests.support.children.loaders import NotingLoader
from tests.support.children.telling import Notes
from tests.support.children.workload import Workload

OPERATIONS_PER_S = 2000
"""So many that there is always something in flight, and what a test waits for still has a machine to run on."""


def main(history: str, seed: str, operations: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    notes, over = Notes(Path(history)), threading.Event()

    def critical(error: JournalError) -> None:
        notes.write(critical=type(error).__name__)

    def wait_for_end() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with BlockingJournal(load_settings(None), on_critical=critical) as journal:
        loader = NotingLoader(notes)
        journal.activate(loader)
        notes.write(active=loader.epoch)
        workload = Workload(int(seed), loader.epoch, loader.lines, journal.new_id)
        try:
            append(Appending(notes, journal, workload), journal, notes, int(operations), over)
        except FencedError as error:
            notes.write(refusal=type(error).__name__, state=journal.state.value)
        over.wait()


def append(
    appending: Appending, journal: BlockingJournal, notes: Notes, operations: int, over: threading.Event
) -> None:
    appended = 0
    while not over.is_set() and (not operations or appended < operations):
        began = time.monotonic()
        more = appending.burst()
        appended += more
        if appended % 4 == 0:
            journal.flush().wait()
        over.wait(max(0.0, began + more / OPERATIONS_PER_S - time.monotonic()))
    appending.wait()
    if operations:
        notes.write(ended=appended)
        over.wait()
    # whoever was fenced while idle hears of it now
    journal.new_id()
