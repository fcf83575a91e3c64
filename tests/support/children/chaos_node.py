"""A node under test: it runs the seeded workload while it is active, and writes down what it was told.

Arguments: SEED RATE HISTORY, with the journal in its environment. It ends cleanly on SIGTERM. While
there is a file of the name in CHAOS_IDLE_NOTE, it appends nothing.
"""

from __future__ import annotations

import base64
import logging
import os
import sys
import threading
import time
from pathlib import Path

from journal.cli.stopping import stopped_by_signals
from journal.config import Settings, load_settings
from journal.errors import FencedError, JournalError, OperatingError, OutcomeUnknownError
from journal.journal import BlockingJournal
from journal.load.loading import LoadCounts
from loaders.node.node import Node
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode
from tests.chaos.crash_places import crash_in_activations
from tests.chaos.crash_points import CrashPoints
from tests.chaos.history import digest
from tests.chaos.loading import DigestLoader
from tests.support.children.appending import Appending
from tests.support.children.telling import Notes
from tests.support.children.workload import Workload
from tests.support.script_model import Line

LOOK_EVERY_S = 0.02
START_AGAIN_S = 0.5


class RoleNotes(Notes):
    """A history that also says what the node is."""

    _role = ""

    def role(self, role: str, epoch: int = 0) -> None:
        """What the node is now, if it was something else."""
        if role != self._role:
            self._role = role
            self.write(role=role, epoch=epoch, t=time.time())


def with_digest(line: Line) -> Line:
    """An operation as it is written down: its data by their digest."""
    return line | {"data": digest(base64.b64decode(line["data"]))} if "data" in line else line


class Owner:
    """The broker whose node this is: appends while active, and not a moment longer."""

    def __init__(self, notes: RoleNotes, seed: int, rate: int) -> None:
        self._notes = notes
        self._seed = seed
        self._rate = rate
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def on_active(self, active: ActiveNode) -> None:
        loader, epoch = active.loader, active.report.epoch
        assert isinstance(loader, DigestLoader)
        self._notes.write(loaded=loader.lines, epoch=epoch, warm=active.report.warm)
        self.on_standby()
        self._over = threading.Event()
        workload = Workload(self._seed, epoch, loader.lines, active.journal.new_id)
        appending = Appending(self._notes, active.journal, workload, with_digest)
        its = (appending, active.journal, self._notes, self._rate, self._over)
        self._thread = threading.Thread(target=append, args=its, name="workload", daemon=True)
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


def append(appending: Appending, journal: BlockingJournal, notes: Notes, rate: int, over: threading.Event) -> None:
    """The workload of one activation, until it is told to end, or the journal is lost."""
    idle_note = Path(os.environ["CHAOS_IDLE_NOTE"])
    bursts = 0
    due = time.monotonic()
    try:
        while not over.is_set():
            if idle_note.exists():
                over.wait(LOOK_EVERY_S)
                continue
            appended = appending.burst()
            bursts += 1
            if bursts % 4 == 0:
                journal.flush().wait()
            now = time.monotonic()
            due = max(due, now - 1) + appended / rate
            over.wait(max(0.0, due - now))
    except (FencedError, OutcomeUnknownError, OperatingError) as error:
        notes.write(ended=type(error).__name__, t=time.time())


def run_node(settings: Settings, owner: Owner, notes: RoleNotes, points: CrashPoints, over: threading.Event) -> Role:
    """One node, until `over` or until it ends by itself; what it was when it was told to end."""

    class Loader(DigestLoader):
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


def main(seed: str, rate: str, history: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    notes = RoleNotes(Path(history))
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
