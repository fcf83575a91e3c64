"""A worker under test, which ends at a named point (`tests.chaos.crash_points`) once one is armed.

Arguments: HOME NAME OPTION... for `kafka-journal worker`, with the journal in its environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.cli.main import main as command_line
from tests.chaos.crash_places import crash_in_checkpoints, crash_in_commits
from tests.chaos.crash_points import CrashPoints


def main(home: str, name: str, *options: str) -> None:
    points = CrashPoints(Path(home))
    crash_in_checkpoints(points)
    crash_in_commits(points)
    sys.argv[:] = ["kafka-journal", "worker", "--name", name, *options]
    command_line()
