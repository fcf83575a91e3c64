"""How a process under test says what it does: lines of a file, which outlive a SIGKILL, or of its standard output."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from journal.errors import JournalError

_told = threading.Lock()


class Notes:
    """A file of JSON lines, each written at once, from any thread.

    A process that goes on in a file drops a last line that a kill cut off: the next one would go on where it ends.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._file = path.open("ab", buffering=0)

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def outcome(self, number: int, error: JournalError | None, **more: Any) -> None:
        """What the completion of an operation says."""
        if error is None:
            self.write(done=number, **more)
        else:
            self.write(failed=number, error=type(error).__name__)


def read_notes(path: Path) -> list[dict[str, Any]]:
    """The whole lines of such a file."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def tell(event: str, **facts: Any) -> None:
    """Say on standard output what happened, and when."""
    with _told:
        print(json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True)


def obey(commands: Mapping[str, Callable[..., None]], stop: threading.Event) -> None:
    """Call, in a thread of its own, what each line of standard input names, with the numbers behind the name.

    `stop` is set when the input ends.
    """

    def listen() -> None:
        for line in sys.stdin:
            word, *numbers = line.split()
            commands[word](*map(int, numbers))
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
