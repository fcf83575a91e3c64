"""Accepts clients for a server: TCP, then TLS where there are certificates, then a protocol.

A client counts from its first packet on, so those that do not go on with TLS cannot fill the memory. Each has the
certificates of its moment.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from journal.errors import ConfigError

log = logging.getLogger(__name__)

_BACKLOG = 1024
_PAUSE_S = 1.0
"""How soon it is tried again after the process had no descriptor left for a client."""


def require_free(host: str, port: int) -> None:
    """Raises ConfigError if the address is in use or not this machine's."""
    for each in _opened(host, port):
        each.close()


def _opened(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at an address, one for each family."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            sockets[-1].setblocking(False)
    except OSError as error:
        for each in sockets:
            each.close()
        raise ConfigError(
            f"cannot listen for AMQP on {host}:{port}: {error.strerror}; end what listens there, or choose another "
            "address: --amqp HOST:PORT, or the setting amqp.listen"
        ) from error
    return sockets


class Listener:
    """Listens at one address. The event loop's thread uses it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: Callable[[], asyncio.Protocol],
        *,
        has_room: Callable[[int], bool],
        tls: Callable[[], ssl.SSLContext] | None,
        handshake_s: float,
    ) -> None:
        """`has_room` tells, by the number of clients that have no protocol yet, whether one more may come."""
        self._loop = loop
        self._protocol = protocol
        self._has_room = has_room
        self._tls = tls
        self._handshake_s = handshake_s if tls is not None else None
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._arriving: set[asyncio.Task[None]] = set()

    def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen from now on, in a loop that need not run yet; returns host and port. Raises ConfigError if the address
        is in use or not this machine's."""
        self._sockets = _opened(host, port)
        self._accepting = [self._loop.create_task(self._accept(each)) for each in self._sockets]
        name = self._sockets[0].getsockname()
        return name[0], name[1]

    def close(self) -> None:
        """Listen no more, and leave clients that have no protocol yet."""
        for task in (*self._accepting, *self._arriving):
            task.cancel()
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, address = await self._loop.sock_accept(listening)
            except OSError as error:
                log.error("no client can be accepted: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            if not self._has_room(len(self._arriving)):
                client.close()
                continue
            task = self._loop.create_task(self._welcome(client, address))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _welcome(self, client: socket.socket, address: tuple[object, ...]) -> None:
        context = self._tls() if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, client, ssl=context, ssl_handshake_timeout=self._handshake_s
            )
        except OSError as error:
            with suppress(OSError):
                client.close()
            log.info("%s:%s: a client is refused: %s", *address[:2], error)
