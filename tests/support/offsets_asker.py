"""Tells a group's offset of a topic's first partition, at once and again for each line that it is given.

python -m tests.support.offsets_asker BOOTSTRAP GROUP TOPIC
"""

from __future__ import annotations

import sys
from contextlib import closing

from journal.kafka.clients import KafkaClients

_TIMEOUT_S = 30.0


def main() -> None:
    bootstrap, group, topic = sys.argv[1:]
    with closing(KafkaClients(bootstrap).cluster()) as cluster:
        while True:
            print(cluster.stable_offsets(group, [(topic, 0)], _TIMEOUT_S)[topic, 0], flush=True)
            if not sys.stdin.readline():
                break


if __name__ == "__main__":
    main()
