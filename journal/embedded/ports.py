"""Ports of the embedded Apache Kafka. Free ports are chosen once for a cluster, and checked before each start."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Sequence

from journal.embedded.config import HOST
from journal.errors import EmbeddedKafkaError

# This range is below the one that systems use for outgoing connections, so that none of these takes a port of ours
# while the brokers are stopped.
PORT_RANGE = range(20000, 32000)
TRIES_MAX = 1000


def choose_free_ports(count: int, avoid: Iterable[int]) -> tuple[int, ...]:
    """Ports that nobody listens on now. They are random, so that clusters that are made at the same time rarely get the
    same."""
    chosen: list[int] = []
    avoided = set(avoid)
    for port in random.sample(PORT_RANGE, TRIES_MAX):
        if len(chosen) == count:
            break
        if port not in avoided and not taken_ports([port]):
            chosen.append(port)
    if len(chosen) < count:
        raise EmbeddedKafkaError(
            f"no {count} free ports between {PORT_RANGE[0]} and {PORT_RANGE[-1]}: name some yourself"
        )
    return tuple(chosen)


def taken_ports(ports: Sequence[int], host: str = HOST) -> list[int]:
    """Those of `ports` that cannot be listened on. Closing connections of an earlier broker do not count."""
    taken = []
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen(1)
            except OSError:
                taken.append(port)
    return taken
