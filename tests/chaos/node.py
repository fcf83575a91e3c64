"""A node under test: it runs the seeded workload while it is active, and writes down what it was told.

`python -m tests.chaos.node SEED RATE HISTORY`, with the journal in its environment; it ends cleanly on SIGTERM. While
there is a file of the name in CHAOS_IDLE_NOTE, it appends nothing.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from journal.append.completion import Completion
from journal.cli.script import apply_operation
from journal.cli.stopping import stopped_by_signals
from journal.config import Settings, load_settings
from journal.errors import CallerError, FencedError, JournalError, OperatingError, OutcomeUnknownError
from journal.journal import BlockingJournal
from journal.load.loading import LoadCounts
from loaders.node.node import Node
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode
from tests.chaos.crash_places import crash_in_activations
from tests.chaos.crash_points import CrashPoints
from tests.chaos.history import digest
from tests.chaos.loading import NotingLoader
from tests.support.history_files import open_history
from tests.support.node_workload import Workload
from tests.support.script_model import Line

IN_FLIGHT_MAX = 300
LOOK_EVERY_S = 0.02
START_AGAIN_S = 0.5


class Notes:
    """Lines appended to the history, each in one write, from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = open_history(path)
        self._role = ""

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def role(self, role: str, epoch: int = 0) -> None:
        """What the node is now, if it was something else."""
        if role != self._role:
            self._role = role
            self.write(role=role, epoch=epoch, t=time.time())

    def told(self, number: int, error: JournalError | None) -> None:
        """What a completion said."""
        if error is None:
            self.write(done=number, t=time.time())
        else:
            self.write(failed=number, error=type(error).__name__)

    def submits(self, line: Line) -> None:
        """An operation, before its call."""
        self.write(**line | {"data": digest(base64.b64decode(line["data"]))} if "data" in line else line)


class Owner:
    """The broker whose node this is: appends while active, and not a moment longer."""

    def __init__(self, notes: Notes, seed: int, rate: int) -> None:
        self._notes = notes
        self._seed = seed
        self._rate = rate
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def on_active(self, active: ActiveNode) -> None:
        loader, epoch = active.loader, active.report.epoch
        assert isinstance(loader, NotingLoader)
        self._notes.write(loaded=loader.lines, epoch=epoch, warm=active.report.warm)
        self.on_standby()
        self._over = threading.Event()
        appending = Appending(self._notes, active.journal, self._rate, self._over)
        workload = Workload(self._seed, epoch, loader.lines, active.journal.new_id)
        self._thread = threading.Thread(target=lambda: appending.run(workload), name="workload", daemon=True)
        self._thread.start()

    def on_standby(self) -> None:
        """Whatever appended has ended when this returns."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def on_fenced(self, error: JournalError) -> None:
        self._notes.write(fenced=str(error), t=time.time())
        self.on_standby()


class Appending:
    """The workload of one activation, in a thread of its own."""

    def __init__(self, notes: Notes, journal: BlockingJournal, rate: int, over: threading.Event) -> None:
        self._notes = notes
        self._journal = journal
        self._rate = rate
        self._over = over
        self._idle_note = Path(os.environ["CHAOS_IDLE_NOTE"])
        self._in_flight: deque[Completion] = deque()

    def run(self, workload: Workload) -> None:
        """Until it is told to end, or the journal is lost."""
        bursts = 0
        due = time.monotonic()
        try:
            while not self._over.is_set():
                if self._idle_note.exists():
                    self._over.wait(LOOK_EVERY_S)
                    continue
                appended = sum(self._submit(workload, line) for line in workload.burst())
                bursts += 1
                if bursts % 4 == 0:
                    self._journal.flush().wait()
                now = time.monotonic()
                due = max(due, now - 1) + appended / self._rate
                self._over.wait(max(0.0, due - now))
        except (FencedError, OutcomeUnknownError, OperatingError) as error:
            self._notes.write(ended=type(error).__name__, t=time.time())

    def _submit(self, workload: Workload, line: Line) -> int:
        """How many operations were appended. Raises what says that this node is active no more."""
        self._notes.submits(line)
        number: int = line["n"]
        try:
            operation = line | {"data": base64.b64decode(line.get("data", ""))}
            completion = apply_operation(self._journal, operation, number)
        except CallerError:
            self._notes.write(refused=number)
            workload.refused(line)
            return 0
        completion.add_callback(lambda error: self._notes.told(number, error))
        if "tx" not in line:
            self._in_flight.append(completion)
        while len(self._in_flight) > IN_FLIGHT_MAX:
            self._in_flight.popleft().wait()
        return 1


def run_node(settings: Settings, owner: Owner, notes: Notes, points: CrashPoints, over: threading.Event) -> Role:
    """One node, until `over` or until it ends by itself; what it was when it was told to end."""

    class Loader(NotingLoader):
        """Ends at a point."""

        def complete(self, counts: LoadCounts) -> None:
            super().complete(counts)
            points.reached("loaded")

    def progress(step: str, done: int, _: int) -> None:
        if step == "gate" and done:
            points.reached("first shard gated")

    with Node(
        settings,
        loader=Loader,
        progress=progress,
        on_active=owner.on_active,
        on_standby=owner.on_standby,
        on_fenced=owner.on_fenced,
    ) as node:
        while not over.wait(LOOK_EVERY_S) and node.role is not Role.STOPPED:
            notes.role(node.role.value, node.status().epoch)
        return node.role


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    seed, rate, history = sys.argv[1:]
    notes = Notes(Path(history))
    owner = Owner(notes, int(seed), int(rate))
    points = CrashPoints(Path(history).parent)
    crash_in_activations(points)
    notes.role("starting")
    with stopped_by_signals() as over:
        while not over.is_set():
            try:
                if run_node(load_settings(None), owner, notes, points, over) is Role.STOPPED:
                    sys.exit("the node ended by itself")
            except OperatingError as error:
                logging.warning("cannot start: %s", error)
                over.wait(START_AGAIN_S)
    notes.role("stopped")


if __name__ == "__main__":
    main()
