"""A member of a plain consumer group: `python -m bench.failover_member BOOTSTRAP GROUP TOPIC SESSION_MS HEARTBEAT_MS`.

It stands for a service that leaves it to Kafka which process is active. It obeys `open` and `close` on its standard
input, and writes a JSON line when it is assigned a partition. It ends when its standard input ends.
"""

from __future__ import annotations

import sys
import threading
from queue import Empty, SimpleQueue

from confluent_kafka import Consumer, TopicPartition

from bench.failover_processes import tell

_POLL_S = 0.05


def _on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    consumer.incremental_assign(partitions)
    if partitions:
        tell("assigned")


def main() -> None:
    bootstrap, group, topic, session_ms, heartbeat_ms = sys.argv[1:]
    words: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(words,), daemon=True).start()
    consumer: Consumer | None = None
    while True:
        try:
            word = words.get_nowait() if consumer is not None else words.get()
        except Empty:
            word = ""
        if word == "open":
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": group,
                    "partition.assignment.strategy": "cooperative-sticky",
                    "session.timeout.ms": int(session_ms),
                    "heartbeat.interval.ms": int(heartbeat_ms),
                    "auto.offset.reset": "latest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe([topic], on_assign=_on_assign)
        elif word and consumer is not None:
            tell("closing")
            consumer.close()
            consumer = None
            tell("closed")
        if word == "end":
            return
        if consumer is not None:
            consumer.poll(_POLL_S)


def _listen(words: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        words.put(line.strip())
    words.put("end")


if __name__ == "__main__":
    main()
