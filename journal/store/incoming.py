"""Messages from Kafka topics, in the form in which their consumer gives them to the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from journal.store.model import Message


class Incoming(NamedTuple):
    """A durable message, encoded outside of the store's lock."""

    address: str
    data: bytes
    """The data of a small message's record; empty for a large message, whose record names chunks that have no ids
    yet."""
    timestamp: int
    """Milliseconds since 1970; 0 for none."""
    message: Message | None
    """The message; None for a plain one, because `data` has all of it."""


class PlainRun(NamedTuple):
    """Plain messages for one address: each has a small body, properties, the default priority, and a timestamp.

    They are in columns, because the store handles them column by column.
    """

    address: str
    data: list[bytes]
    timestamps: list[int]
    """Milliseconds since 1970; 0 for none."""

    def each(self) -> Iterator[Incoming]:
        for data, timestamp in zip(self.data, self.timestamps, strict=True):
            yield Incoming(self.address, data, timestamp, None)
