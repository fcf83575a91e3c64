"""A worker under test, or its reader, which ends at a named point (`tests.chaos.crash_points`) once one is armed.

Arguments: HOME NAME OPTION... for `kafka-journal worker`, with the journal in its environment. Its reader, where it has
one, is this program with `reader HOME NUMBER`, and ends with its worker.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.cli.main import main as command_line
from journal.cli.worker import worker
from journal.cli.worker.reader import main as read
from tests.chaos.crash_places import crash_in_checkpoints, crash_in_commits
from tests.chaos.crash_points import CrashPoints
from tests.support.processes.child import program


def main(home: str, name: str, *options: str) -> None:
    if home == "reader":
        sys.argv[1:] = options
        crash_in_commits(CrashPoints(Path(name), parent=True))
        read()
        return
    points = CrashPoints(Path(home))
    crash_in_checkpoints(points)
    crash_in_commits(points)
    vars(worker)["reader_command"] = lambda **_: program("mortal_worker", "reader", home)
    sys.argv[:] = ["kafka-journal", "worker", "--name", name, *options]
    command_line()
