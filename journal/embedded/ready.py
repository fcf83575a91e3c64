"""Checks whether brokers answer: each is asked over the network, at its own port.

A broker opens that port only when the controller has registered this start of it. So its answer about itself is of this
start. The answer of another broker may still be about its earlier process, which was killed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

POLL_S = 0.05
# Brokers that start refuse connections. Clients try again at once, and do not log each refusal.
CLIENT_PROPERTIES = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}


def answering_brokers(addresses: Mapping[int, str], timeout_s: float) -> frozenset[int]:
    """The brokers that say that they are members. It returns when all of `addresses` (by broker number) do, or when the
    time is up."""
    if not addresses:
        return frozenset()
    with ThreadPoolExecutor(len(addresses)) as pool:
        answers = pool.map(lambda broker: _answers(broker, addresses[broker], timeout_s), addresses)
        return frozenset(broker for broker, answers_now in zip(addresses, answers, strict=True) if answers_now)


def _answers(broker: int, address: str, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    admin = AdminClient({"bootstrap.servers": address, **CLIENT_PROPERTIES})
    while True:
        try:
            if broker in admin.list_topics(timeout=max(deadline - time.monotonic(), POLL_S)).brokers:
                return True
        except KafkaException:
            pass  # the broker refuses the connection, or does not answer yet
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
