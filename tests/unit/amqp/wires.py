"""Two peers joined in memory: an engine of ours and proton's, or two of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import proton

from journal.amqp import Connection
from journal.amqp.events import Event

Answer = Callable[[Event], None]


class ProtonPeer:
    """A proton connection without a socket. Its events are collected by name."""

    def __init__(self, *, server: bool = False) -> None:
        self.connection = proton.Connection()
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self.events: list[tuple[str, Any]] = []

    def bind(self) -> None:
        self.transport.bind(self.connection)

    def take(self) -> bytes:
        pending = self.transport.pending()
        if pending <= 0:
            return b""
        data = bytes(self.transport.peek(pending))
        self.transport.pop(len(data))
        return data

    def give(self, data: bytes) -> None:
        while data and self.transport.capacity() > 0:
            room = self.transport.capacity()
            self.transport.push(data[:room])
            data = data[room:]
            self.collect()

    def collect(self) -> list[tuple[str, Any]]:
        """All events since the last call."""
        found = []
        while (event := self.collector.peek()) is not None:
            found.append((event.type.name, event.context))
            self.collector.pop()
        self.events += found
        return found


def exchange(ours: Connection, peer: ProtonPeer, answer: Answer, cut: int = 1 << 30) -> list[Event]:
    """Passes bytes both ways, `cut` at a time, and answers each of our engine's events; returns the events."""
    seen: list[Event] = []
    while True:
        sent, received = ours.bytes_to_send(), peer.take()
        if not sent and not received:
            return seen
        for piece in pieces(sent, cut):
            peer.give(piece)
        peer.collect()
        for piece in pieces(received, cut):
            for event in ours.receive(piece):
                seen.append(event)
                answer(event)


def pass_between(one: Connection, other: Connection, answers: tuple[Answer, Answer], cut: int = 1 << 30) -> None:
    """The same for two engines of ours; events are answered, the first engine's by the first answer."""
    while True:
        parts = [one.bytes_to_send(), other.bytes_to_send()]
        if not any(parts):
            return
        for engine, data, answer in zip((other, one), parts, reversed(answers), strict=True):
            for piece in pieces(data, cut):
                for event in engine.receive(piece):
                    answer(event)


def pieces(data: bytes, cut: int) -> Iterable[bytes]:
    return (data[at : at + cut] for at in range(0, len(data), cut))
