"""Who may connect to one server, and what they may do: all that its settings name, read and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from journal.amqp.settings import AmqpSettings
from journal.broker.security.access import UserAccess
from journal.broker.security.login import Login, peer_of
from journal.broker.security.tls import ServerTls
from journal.broker.security.usage import ConnectionUsage, UsersUsage
from journal.broker.security.users_file import UsersFile

_HASHING_THREADS = 2
"""Threads that check passwords. Clients with wrong ones keep no others from the processor."""


class ServerSecurity:
    """The security of a server. The event loop's thread uses it."""

    def __init__(self, settings: AmqpSettings, users_changed: Callable[[], None] = lambda: None) -> None:
        """`users_changed` is called when the users were read again. Raises ConfigError if a file cannot be used."""
        security = settings.security
        self._anonymous = security.anonymous
        self.users = None if security.users_file is None else UsersFile(security.users_file, users_changed)
        self.tls = None if security.certificate is None else ServerTls(security)
        self._usage = UsersUsage(settings.per_user if self.users else None)
        self._hashing = ThreadPoolExecutor(_HASHING_THREADS, "kafka-journal-login")

    def login(self, transport: asyncio.Transport) -> Login:
        """The login of a new connection."""
        return Login(self.users, peer_of(transport.get_extra_info), self._hashing, anonymous=self._anonymous)

    def usage(self) -> ConnectionUsage:
        """The usage of a new connection."""
        return ConnectionUsage(self._usage)

    def access(self, login: Login) -> UserAccess:
        """The permissions of a connection whose user is known."""
        return UserAccess(self.users, login.user, login.peer.address)

    def close(self) -> None:
        """Start nothing more."""
        self._hashing.shutdown(wait=False, cancel_futures=True)
