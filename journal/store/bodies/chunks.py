"""Large messages: their bodies in chunks, records of one transaction with their message.

Chunks go to the journal as they come, so that no more than one of them is in memory; until the transaction is
committed they are nothing, and what is cut off leaves nothing. What is not durable is kept in chunks too, so that it
is swapped and read piece by piece.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from journal.errors import DeadlineError, MessageTooLargeError

_WAIT_S = 0.01
"""Time between two looks at the local copy, which tells nobody what it has received.

Few bodies are waited for: those of large messages that were committed just now."""


class Chunks:
    """Cuts a body that comes in pieces of any size into chunks."""

    def __init__(self, put: Callable[[bytes], int], *, chunk_bytes: int, bytes_max: int) -> None:
        """`put` keeps a chunk and returns its id, or raises with nothing kept."""
        self.ids: list[int] = []
        self.bytes = 0
        self._put = put
        self._chunk_bytes = chunk_bytes
        self._bytes_max = bytes_max
        self._gathered = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body. Raises MessageTooLargeError."""
        if self.bytes + len(piece) > self._bytes_max:
            raise MessageTooLargeError(
                f"a body of more than {self._bytes_max} bytes (store.message_bytes_max, and what limits take in chunks)"
            )
        self.bytes += len(piece)
        self._gathered += piece

    def has_chunk(self, *, end: bool = False) -> bool:
        """Whether a whole chunk is there, with more behind it; at the `end` the rest is a chunk."""
        return len(self._gathered) > self._chunk_bytes or (end and bool(self._gathered))

    def put_chunk(self) -> None:
        """Put the first chunk. Raises what `put` raises, and may then be tried again."""
        self.ids.append(self._put(bytes(self._gathered[: self._chunk_bytes])))
        del self._gathered[: self._chunk_bytes]

    def rest(self) -> bytes:
        """The bytes that no chunk has taken yet."""
        return bytes(self._gathered)


class BodyStream:
    """The body of a message, chunk by chunk. Iterate it once, in a thread or in an event loop.

    Raises MessageMissingError if the message goes meanwhile, DeadlineError if the local copy does not get a chunk.
    """

    def __init__(
        self, message_id: int, pieces: Sequence[int], read: Callable[[int], bytes | None], timeout_s: float
    ) -> None:
        """`read` returns a piece, or None while it cannot be read yet; it raises MessageMissingError."""
        self._message_id = message_id
        self._pieces = pieces
        self._read = read
        self._timeout_s = timeout_s

    def __iter__(self) -> Iterator[bytes]:
        for piece_id in self._pieces:
            until = time.monotonic() + self._timeout_s
            while (piece := self._read(piece_id)) is None:
                self._require_time(until)
                time.sleep(_WAIT_S)
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece_id in self._pieces:
            until = time.monotonic() + self._timeout_s
            while (piece := await asyncio.to_thread(self._read, piece_id)) is None:
                self._require_time(until)
                await asyncio.sleep(_WAIT_S)
            yield piece

    def _require_time(self, until: float) -> None:
        if time.monotonic() > until:
            raise DeadlineError(
                f"message {self._message_id} is not in the local copy after {self._timeout_s} s: is a worker running?"
            )
