"""Messages on their way in, as whoever takes them in hands them to the store."""

from __future__ import annotations

from typing import NamedTuple

from journal.store.model import Message


class Incoming(NamedTuple):
    """A durable message, encoded outside of the store's lock."""

    address: str
    data: bytes
    """Of a small one; empty: its record also names its chunks, which have no ids yet."""
    timestamp: int
    """ms since 1970; 0: it has none."""
    message: Message | None
    """None: it has a body, properties, the default priority and the timestamp, and nothing else; `data` says it all."""
