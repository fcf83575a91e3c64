"""`kafka-journal`, which kills itself in one of its Kafka transactions.

Arguments: FAULT HOME ARGUMENT...: `taking-in` is at the point that the file `HOME/crash-at` names, once there is one;
`second-transaction` is when all of that transaction is sent, and nothing is committed.
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


def die_in_the_second_transaction() -> None:
    committed = 0

    class Producer(KafkaTransactionalProducer):
        def commit_transaction(self, timeout_s: float) -> bool:
            nonlocal committed
            if committed:
                os.kill(os.getpid(), signal.SIGKILL)
            committed += 1
            return super().commit_transaction(timeout_s)

    vars(clients)["KafkaTransactionalProducer"] = Producer


def main(fault: str, home: str, *arguments: str) -> None:
    if fault == "taking-in":
        crash_while_taking_in(crash_at(Path(home)))
    else:
        die_in_the_second_transaction()
    sys.argv[:] = ["kafka-journal", *arguments]
    command_line()
