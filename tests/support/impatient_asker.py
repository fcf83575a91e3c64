"""Asks for a group's members and offsets for less time than an answer takes, then tells what a patient one is told.

python -m tests.support.impatient_asker BOOTSTRAP GROUP TOPIC ROUNDS
"""

from __future__ import annotations

import sys
from contextlib import closing

from journal.errors import KafkaUnavailableError
from journal.kafka.clients import KafkaClients

_SHORT_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
_TIMEOUT_S = 30.0


def main() -> None:
    bootstrap, group, topic, rounds = sys.argv[1:]
    unanswered = 0
    with closing(KafkaClients(bootstrap).cluster()) as cluster:
        for n in range(int(rounds)):
            for short_s in _SHORT_S:
                try:
                    if n % 2:
                        cluster.group_members(group, short_s)
                    else:
                        cluster.group_offsets(group, topic, short_s)
                except KafkaUnavailableError:
                    unanswered += 1
        print(unanswered, cluster.group_members(group, _TIMEOUT_S), cluster.group_offsets(group, topic, _TIMEOUT_S))


if __name__ == "__main__":
    main()
