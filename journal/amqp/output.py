"""The bytes that are to be sent, in order, until the caller takes them."""

from __future__ import annotations

from journal.amqp.described import Composite
from journal.amqp.frames import frame
from journal.amqp.limits import FRAME_BYTES_LEAST


class Output:
    """Frames that wait for `Connection.bytes_to_send`."""

    __slots__ = ("frame_bytes_max", "pieces", "taken")

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.frame_bytes_max = FRAME_BYTES_LEAST
        """The largest frame that the peer accepts; the least that there is until it has opened."""
        self.taken = 0
        """The number of times that there was something to take, which shows that the connection was not idle."""

    def write(self, channel: int, performative: Composite) -> None:
        self.pieces.append(frame(channel, performative.encoded()))

    def take(self) -> bytes:
        if not self.pieces:
            return b""
        self.taken += 1
        data = b"".join(self.pieces)
        self.pieces.clear()
        return data
