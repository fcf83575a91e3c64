"""A worker under test: `kafka-journal worker`, which ends at a named point once one is armed.

`python -m tests.chaos.worker HOME NAME [OPTION ...]`, with the journal in its environment. Its reader, where it has
one, is `tests.chaos.reader`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.cli.main import main as command_line
from journal.cli.worker import worker
from tests.chaos.crash_places import crash_in_checkpoints, crash_in_commits
from tests.chaos.crash_points import CrashPoints


def main() -> None:
    home, name, *options = sys.argv[1:]
    points = CrashPoints(Path(home))
    crash_in_checkpoints(points)
    crash_in_commits(points)

    def reader_command(**_: bool) -> list[str]:
        return [sys.executable, "-m", "tests.chaos.reader", home]

    vars(worker)["reader_command"] = reader_command
    sys.argv[:] = ["kafka-journal", "worker", "--name", name, *options]
    command_line()


if __name__ == "__main__":
    main()
