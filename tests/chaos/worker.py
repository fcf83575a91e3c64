"""A worker under test: `kafka-journal worker`, which ends at a named point once one is armed.

It has no reader, so that all points are in one process.

`python -m tests.chaos.worker HOME NAME [OPTION ...]`, with the journal in its environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.cli.main import main as command_line
from tests.chaos.crash_places import crash_in_checkpoints
from tests.chaos.crash_points import CrashPoints


def main() -> None:
    home, name, *options = sys.argv[1:]
    crash_in_checkpoints(CrashPoints(Path(home)))
    sys.argv[:] = ["kafka-journal", "worker", "--no-reader", "--name", name, *options]
    command_line()


if __name__ == "__main__":
    main()
