"""Asks Kafka about a group in a process of its own: librdkafka may end one whose request has timed out.

Arguments: HOW BOOTSTRAP GROUP TOPIC ROUNDS. `patiently` tells the group's offset of the topic's first partition, at
once and again for each line of standard input. `impatiently` asks so many times for members and offsets for less time
than an answer takes, then tells what a patient one is told.
"""

from __future__ import annotations

import sys
from contextlib import closing

from journal.errors import KafkaUnavailableError
from journal.kafka.clients import KafkaClients
from journal.kafka.ports import Cluster

_SHORT_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
_TIMEOUT_S = 30.0


def main(how: str, bootstrap: str, group: str, topic: str, rounds: str = "0") -> None:
    with closing(KafkaClients(bootstrap).cluster()) as cluster:
        if how == "patiently":
            print(offset(cluster, group, topic), flush=True)
            for _ in sys.stdin:
                print(offset(cluster, group, topic), flush=True)
        else:
            unanswered = sum(ask_shortly(cluster, group, topic, n) for n in range(int(rounds)))
            print(unanswered, cluster.group_members(group, _TIMEOUT_S), cluster.group_offsets(group, topic, _TIMEOUT_S))


def offset(cluster: Cluster, group: str, topic: str) -> int:
    return cluster.stable_offsets(group, [(topic, 0)], _TIMEOUT_S)[topic, 0]


def ask_shortly(cluster: Cluster, group: str, topic: str, n: int) -> int:
    """Number of requests without an answer in time."""
    unanswered = 0
    for short_s in _SHORT_S:
        try:
            if n % 2:
                cluster.group_members(group, short_s)
            else:
                cluster.group_offsets(group, topic, short_s)
        except KafkaUnavailableError:
            unanswered += 1
    return unanswered
