"""Ports of the embedded Apache Kafka: free ones chosen once for a cluster's life, taken ones noticed before a start."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Sequence

from journal.embedded.config import HOST
from journal.errors import EmbeddedKafkaError

# Below the range that systems hand to outgoing connections: one of those must not sit on our port when we come back.
PORT_RANGE = range(20000, 32000)
TRIES_MAX = 1000


def choose_free_ports(count: int, avoid: Iterable[int]) -> tuple[int, ...]:
    """Ports that nobody listens on now; random, so that clusters made at the same time rarely meet."""
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
    """Those that cannot be listened on. Connections of an earlier broker that are still closing do not count."""
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
