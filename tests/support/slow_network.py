"""A TCP proxy in front of one broker: it delays what passes, cuts connections, and counts the requests that it sees.

Responses tell clients the broker's own address. The proxy puts its own port there, which takes as many bytes, so that
every connection that a client makes comes through it.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Self

HOST = "127.0.0.1"
END_TXN = 26
_TIMEOUT_S = 10.0


Passing = Callable[[bytes], tuple[bytes, bool]]
"""What is made of a message, and whether the connection ends behind it."""


class SlowNetwork:
    """Between clients and the broker at `broker` (127.0.0.1:port), from entering the block to leaving it."""

    def __init__(self, broker: str, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        """Each way, of what is read from now on."""
        self.requests: Counter[int] = Counter()
        """Requests that were carried to the broker, by API key."""
        self.cut_behind: dict[int, int] = {}
        """By API key: so many times the connection ends behind such a request, before its response."""
        self._port = int(broker.rpartition(":")[2])
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="slow-network", daemon=True)
        self._started = threading.Event()
        self._told = b""
        self._own = b""
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_TIMEOUT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # which cancels what is left
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accepted, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        self._told, self._own = (HOST.encode() + struct.pack(">i", each) for each in (self._port, port))
        self.bootstrap_servers = f"{HOST}:{port}"
        self._started.set()
        await self._end.wait()
        server.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one side ends it."""
        with closing(writer), suppress(OSError, asyncio.CancelledError):
            broker_reader, broker_writer = await asyncio.open_connection(HOST, self._port)
            with closing(broker_writer):
                ways = [
                    asyncio.ensure_future(self._carry(reader, broker_writer, self._note_request)),
                    asyncio.ensure_future(self._carry(broker_reader, writer, self._rename)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: Passing) -> None:
        """One way: each message when it is due; ends when the connection is to be cut behind one, or is over."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            with suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    size = await reader.readexactly(4)
                    message = await reader.readexactly(*struct.unpack(">i", size))
                    waiting.put_nowait((self._loop.time() + self.delay_s, size + message))
            waiting.put_nowait((0.0, b""))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, message = await waiting.get()
                if not message:
                    return
                await asyncio.sleep(due - self._loop.time())
                message, is_last = passing(message)
                writer.write(message)
                await writer.drain()
                if is_last:
                    return
        finally:
            reading.cancel()

    def _note_request(self, message: bytes) -> tuple[bytes, bool]:
        (api_key,) = struct.unpack_from(">h", message, 4)
        self.requests[api_key] += 1
        cut = self.cut_behind.get(api_key, 0)
        self.cut_behind[api_key] = cut - 1
        return message, cut > 0

    def _rename(self, message: bytes) -> tuple[bytes, bool]:
        return message.replace(self._told, self._own), False
