"""Large messages: their bodies are stored in chunks, which are records of one transaction with their message.

Each chunk is appended as soon as it is complete, so that only one is in memory. The chunks take effect with the
transaction's commit, so a message that is cut off leaves nothing. Bodies that are not durable are kept in chunks too,
so that they are swapped and read piece by piece.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from journal.errors import DeadlineError, MessageTooLargeError

_WAIT_S = 0.01
"""The time between two looks at the local copy, which gives no signal when it has received a record.

Waiting is rare: only the bodies of large messages that were committed a moment ago are missing.
"""


class Chunks:
    """Cuts a body that comes in pieces of any size into chunks."""

    def __init__(self, put: Callable[[bytes], int], *, chunk_bytes: int, bytes_max: int) -> None:
        """`put` stores a chunk and returns its id; if it raises an error, nothing is stored."""
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
        """Whether enough bytes were fed for a whole chunk and more. At the `end` of the body, the rest is a chunk
        too."""
        return len(self._gathered) > self._chunk_bytes or (end and bool(self._gathered))

    def put_chunk(self) -> None:
        """Store the next chunk. If `put` raises an error, the chunk is kept, and the call may be made again."""
        self.ids.append(self._put(bytes(self._gathered[: self._chunk_bytes])))
        del self._gathered[: self._chunk_bytes]

    def rest(self) -> bytes:
        """The bytes that are in no chunk yet."""
        return bytes(self._gathered)


class BodyStream:
    """The body of a message, chunk by chunk. Iterate it once, in a thread or in an event loop.

    Raises MessageMissingError if the message is deleted meanwhile, DeadlineError if the local copy does not get a chunk
    in time.
    """

    def __init__(
        self, message_id: int, pieces: Sequence[int], read: Callable[[int], bytes | None], timeout_s: float
    ) -> None:
        """`read` returns a piece, or None while the piece cannot be read yet; it raises MessageMissingError."""
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
