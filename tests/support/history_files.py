"""Files to which processes that are killed append what they do, line by line."""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path


def open_history(path: Path) -> FileIO:
    """For whole lines, each in one write, which outlives a SIGKILL.

    A last line that a kill cut off goes: the next one would go on where it ends.
    """
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    return path.open("ab", buffering=0)
