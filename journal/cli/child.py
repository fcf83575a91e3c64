"""A command in a child process: `python -m journal.cli.child COMMAND …` is `kafka-journal COMMAND …`, but ends with its
parent, however that ends."""

from __future__ import annotations

import os
import sys
import threading

from journal.cli.main import main


def end_with_parent() -> None:
    """End this process when its standard input ends: only the parent holds the other end of that pipe."""
    threading.Thread(target=_wait_for_end, name="parent", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    end_with_parent()
    main()
