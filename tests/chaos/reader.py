"""The reader of a worker under test, which ends with its worker at a named point once one is armed for that.

`python -m tests.chaos.reader HOME NUMBER`, as its worker starts it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.cli.worker.reader import main as read
from tests.chaos.crash_places import crash_in_commits
from tests.chaos.crash_points import CrashPoints


def main() -> None:
    home = sys.argv.pop(1)
    crash_in_commits(CrashPoints(Path(home), parent=True))
    read()


if __name__ == "__main__":
    main()
