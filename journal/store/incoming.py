"""Messages on their way in, as whoever takes them in hands them to the store."""

from __future__ import annotations

from collections.abc import Iterator
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
    """None: it is a plain one, and `data` says it all."""


class PlainRun(NamedTuple):
    """Plain messages for one address: each has a small body, properties, the default priority, a timestamp, and nothing
    else. In columns, as the store keeps them too: what each costs is not the same work done for each.
    """

    address: str
    data: list[bytes]
    timestamps: list[int]
    """ms since 1970; 0: it has none."""

    def each(self) -> Iterator[Incoming]:
        for data, timestamp in zip(self.data, self.timestamps, strict=True):
            yield Incoming(self.address, data, timestamp, None)
