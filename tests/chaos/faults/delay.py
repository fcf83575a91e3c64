"""A TCP proxy that delays: what a host's connections carry comes so many milliseconds later, each way, and in order.

It stands on the host itself. The kernel redirects the host's connections to it, and tells it where each was to go; its
own are marked, and go there. Connections that were open before are reset when it begins and when it ends.

`python -m tests.chaos.faults.delay MS`, on the host, prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from contextlib import closing

from tests.chaos.faults import namespaces
from tests.chaos.faults.network import Host

TABLE = "delay"
MARK = 0x6B6A
CHUNK_BYTES = 64 * 1024
CHUNKS_MAX = 256
END_TIMEOUT_S = 10.0
_SO_ORIGINAL_DST = 80

# ---- in the parent -------------------------------------------------------------------------------------------


class DelayProxy:
    """A host's connections to `others` are delayed from `start` to `stop`."""

    def __init__(self, host: Host, others: list[Host], delay_ms: int) -> None:
        self._host = host
        self._others = others
        self._delay_ms = delay_ms
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        assert self._process is None, "it runs already"
        command = [*self._host.prefix, sys.executable, "-m", "tests.chaos.faults.delay", str(self._delay_ms)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        addresses = ", ".join(other.ip for other in self._others)
        self._nft(
            f"table ip {TABLE} {{\n"
            "  chain output {\n"
            "    type nat hook output priority -100\n"
            f"    meta mark != {MARK} ip daddr {{ {addresses} }} meta l4proto tcp redirect to :{port}\n"
            "  }\n"
            "}\n"
        )

    def stop(self) -> None:
        """Nothing if it does not run."""
        if self._process is None:
            return
        self._nft(f"delete table ip {TABLE}\n")
        self._process.kill()
        self._process.communicate(timeout=END_TIMEOUT_S)
        self._process = None

    def _nft(self, rules: str) -> None:
        namespaces.run(*self._host.prefix, "nft", "-f", "-", given=rules)


# ---- in the child --------------------------------------------------------------------------------------------


async def serve(delay_s: float) -> None:
    """Until it is killed."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _relay(reader, writer, delay_s)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """One connection, until both ways have ended; an error on either side ends both."""
    accepted: socket.socket = writer.get_extra_info("socket")
    with closing(writer):
        try:
            other_reader, other_writer = await _connect(_original_address(accepted))
            with closing(other_writer):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_carry(reader, other_writer, delay_s))
                    both.create_task(_carry(other_reader, writer, delay_s))
        except* OSError:
            pass  # one side is gone, and so is the other now


async def _connect(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    marked = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    marked.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    marked.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(marked, address)
    except BaseException:  # also a cancellation: the socket is nobody else's
        marked.close()
        raise
    return await asyncio.open_connection(sock=marked)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """One way of a connection: each piece when it is due, and the end behind the last."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)

    async def read() -> None:
        while True:
            chunk = await reader.read(CHUNK_BYTES)
            await waiting.put((loop.time() + delay_s, chunk))
            if not chunk:
                return

    async def write() -> None:
        while True:
            due, chunk = await waiting.get()
            await asyncio.sleep(due - loop.time())
            if not chunk:
                writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()

    async with asyncio.TaskGroup() as both:
        both.create_task(read())
        both.create_task(write())


def _original_address(accepted: socket.socket) -> tuple[str, int]:
    """Where the connection was to go before it was redirected."""
    _, port, ip = struct.unpack("!HH4s8x", accepted.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
    return socket.inet_ntoa(ip), port


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) / 1000))
