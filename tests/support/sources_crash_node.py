"""A node that ends at a named point while it takes records in, once that is armed.

`python -m tests.support.sources_crash_node HOME NAME`, with the journal in its environment; the point is in the file
`HOME/crash-at`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from journal.cli.main import main as command_line
from journal.kafka import clients
from journal.kafka.ports import Consumed
from journal.kafka.transactional_producer import KafkaTransactionalProducer

POINTS = ("appended", "offsets sent", "committed")
"""Behind a batch's frames, behind its offsets, and behind the commit of both before anybody knows of it."""


def crash_at(home: Path) -> Path:
    """Where the armed point is written."""
    return home / "crash-at"


def crash_while_taking_in(armed: Path) -> None:
    """The journal's writer from now on."""

    def reached(point: str) -> None:
        if armed.exists() and armed.read_text(encoding="utf-8") == point:
            os.kill(os.getpid(), signal.SIGKILL)

    class Producer(KafkaTransactionalProducer):
        consumed = False

        def send_offsets(self, consumed: Consumed, timeout_s: float) -> bool:
            reached("appended")
            clean = super().send_offsets(consumed, timeout_s)
            reached("offsets sent")
            self.consumed = True
            return clean

        def commit_transaction(self, timeout_s: float) -> bool:
            clean = super().commit_transaction(timeout_s)
            if self.consumed:
                reached("committed")
            self.consumed = False
            return clean

    vars(clients)["KafkaTransactionalProducer"] = Producer


def main() -> None:
    home, name = sys.argv[1:]
    crash_while_taking_in(crash_at(Path(home)))
    sys.argv[:] = ["kafka-journal", "node", "--name", name]
    command_line()


if __name__ == "__main__":
    main()
