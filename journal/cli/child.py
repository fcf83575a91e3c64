"""A command in a child process: `python -m journal.cli.child COMMAND …` is `kafka-journal COMMAND …`, but ends when its
parent ends, however that happens."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from journal.cli.start import main
from journal.disk.slots import ENDING_WAIT_S, announce_end

IN_ORDER_S = 10.0
"""Seconds for an orderly end. A worker whose node was killed checkpoints and leaves its group at once: the next node
waits for its shards, which otherwise move only when its session ends."""

assert ENDING_WAIT_S > IN_ORDER_S, "its successor waits for its copies until it has ended"


def end_with_parent(*, in_order_s: float = 0.0) -> None:
    """End this process when its standard input ends, because only the parent holds the other end of that pipe. The
    process gets SIGTERM, and `IN_ORDER_S` to end by it."""
    threading.Thread(target=_wait_for_end, args=(in_order_s,), name="parent", daemon=True).start()


def _wait_for_end(in_order_s: float) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    if in_order_s:
        announce_end()  # a new worker of the same node then waits for this one's copies
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(in_order_s)
    os._exit(1)


if __name__ == "__main__":
    end_with_parent(in_order_s=IN_ORDER_S)
    main()
