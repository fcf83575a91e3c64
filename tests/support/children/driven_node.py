"""A process with one `Node`: does what its standard input says, and tells what happens as JSON lines.

Argument: NAME. Settings come from the environment. `write N` appends N records and waits for them; `busy` appends until
it is refused; `quiet` ends that. It ends in order on SIGTERM or with its input.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from journal.cli.stopping import stopped_by_signals
from journal.config import load_settings
from journal.errors import JournalError, RowError
from journal.journal import BlockingJournal
from journal.load.loading import LoadedUpdate
from loaders.node.node import Node
from loaders.node.standing import ActiveNode
from tests.support.children.loaders import KeptState
from tests.support.children.telling import obey, tell

BROKEN_LOADER = "TEST_NODE_BROKEN_LOADER"
"""Set in the environment of a node whose loader refuses every record."""

_WAIT_S = 60.0
_LOOK_S = 0.05


class RefusingState(KeptState):
    """Takes no record if the environment says so."""

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.changed(record_id, kind, data, updates, position)

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        if os.environ.get(BROKEN_LOADER):
            raise RowError("this loader takes no record")
        super().changed(record_id, kind, data, updates, position)


class Owner:
    """What a broker would be."""

    def __init__(self) -> None:
        self._journal: BlockingJournal | None = None
        self._busy = threading.Event()
        self._writing: threading.Thread | None = None

    def on_active(self, active: ActiveNode) -> None:
        assert isinstance(active.loader, RefusingState)
        self._journal = active.journal
        report = active.report
        tell("active", epoch=report.epoch, warm=report.warm, ids=sorted(active.loader.records))

    def on_standby(self) -> None:
        self.quiet()
        self._journal = None
        tell("standby")

    def on_fenced(self, error: JournalError) -> None:
        tell("fenced", error=type(error).__name__)

    def write(self, count: int) -> None:
        """Append so many; all are durable when it says so. What it is refused, it says too."""
        journal = self._journal
        if journal is None:
            tell("refused", error="no journal")
            return
        try:
            ids = [journal.new_id(number) for number in range(count)]
            completions = [journal.add(record_id, 1, b"node test") for record_id in ids]
            for completion in completions:
                completion.wait(_WAIT_S)
            tell("written", ids=ids)
        except JournalError as error:
            tell("refused", error=type(error).__name__)

    def busy(self) -> None:
        self._busy.set()
        self._writing = threading.Thread(target=self._write_on, daemon=True)
        self._writing.start()

    def _write_on(self) -> None:
        journal = self._journal
        assert journal is not None
        try:
            while self._busy.is_set():
                record_id = journal.new_id(0)
                journal.add(record_id, 1, b"busy").wait(_WAIT_S)
                tell("written", ids=[record_id])
        except JournalError as error:
            tell("refused", error=type(error).__name__)

    def quiet(self) -> None:
        self._busy.clear()
        if self._writing is not None:
            self._writing.join(_WAIT_S)


def main(name: str) -> None:
    settings = load_settings(None, node=name)
    owner = Owner()
    node = Node(
        settings,
        loader=RefusingState,
        on_active=owner.on_active,
        on_standby=owner.on_standby,
        on_fenced=owner.on_fenced,
    )
    commands = {"write": owner.write, "busy": owner.busy, "quiet": owner.quiet}
    with stopped_by_signals() as stop, node:
        obey(commands, stop)
        tell_roles(node, stop)
    tell("ended")


def tell_roles(node: Node, stop: threading.Event) -> None:
    """Tell each role of the node, and whether it is fit, until it is to end."""
    fit = None
    while not stop.wait(_LOOK_S):
        status = node.status()
        if (status.role, status.fit) != fit:
            fit = (status.role, status.fit)
            tell("role", role=status.role, fit=status.fit, why_not=status.why_not, reason=status.reason)
