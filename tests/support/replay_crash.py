"""`kafka-journal ARGUMENTS`, which is killed in its second transaction: all of it is sent, and nothing is committed.

`python -m tests.support.replay_crash ARGUMENTS`
"""

from __future__ import annotations

import os
import signal

from journal.cli.main import main
from journal.kafka import clients
from journal.kafka.transactional_producer import KafkaTransactionalProducer


def die_in_the_second_transaction() -> None:
    """Of those that this process commits."""
    committed = 0

    class Producer(KafkaTransactionalProducer):
        def commit_transaction(self, timeout_s: float) -> bool:
            nonlocal committed
            if committed:
                os.kill(os.getpid(), signal.SIGKILL)
            committed += 1
            return super().commit_transaction(timeout_s)

    vars(clients)["KafkaTransactionalProducer"] = Producer


if __name__ == "__main__":
    die_in_the_second_transaction()
    main()
